"""The work of the engine's threads: opens a pair, generates a reply.

Posts messages; touches no widget and keeps no state.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial

from app.tui.background.active_reply import ActiveReply
from app.tui.background.events import (
    ModelFailed,
    ModelLoading,
    ModelReady,
    Post,
    PromptRead,
    ReplyFinished,
    TextGathered,
)
from app.tui.session import Session
from runtime.core.errors import NoMemoryError, SlipstreamError
from runtime.engine import PLAIN_STOPS, ChatPrompt, Chunk, Engine, Message
from runtime.engine.engine import Ask
from runtime.engine.stats import Stats
from runtime.loading.profile_cache import reading_memo, record
from runtime.models.registry import Pair

TELLING = 100  # tokens of a prompt, from which on its reading tells a speed


def open_pair(session: Session, pair: Pair, is_unwanted: Callable[[], bool], post: Post) -> None:
    """Open a pair, with progress, while the current one stays open. If memory does not suffice for both, the current
    one is closed first, and opened again if the other one still fails.
    """

    def opened(wanted: Pair) -> Engine:
        return session.open_engine(wanted, session.options_for(wanted), report)

    def report(part: str, share: float) -> bool:
        post(ModelLoading(part, share))
        return not is_unwanted()

    began = time.perf_counter()
    try:
        engine = open_second(session, partial(opened, pair))
        if engine is None:
            session.stop_serving()
            session.close_engine()
            try:
                engine = opened(pair)
            except SlipstreamError:
                session.engine = opened(session.pair)
                raise
    except SlipstreamError as error:
        post(ModelFailed(pair, str(error)))
    except KeyboardInterrupt:  # raised by the loader after `report` returned False
        return
    else:
        post(ModelReady(pair, engine, time.perf_counter() - began))


def open_second(session: Session, opened: Callable[[], Engine]) -> Engine | None:
    """Return a second engine with the current one open; None if memory does not suffice for both."""
    try:
        engine = opened()
    except NoMemoryError:
        if session.engine is None:
            raise
        return None
    if session.engine is None or not engine.facts.is_short:
        return engine
    engine.close()
    return None


def make_reply(reply: ActiveReply, post: Post) -> None:
    """Generate a reply until it ends, is cancelled or fails."""
    last: Chunk | None = None
    try:
        for last in chunks_of(reply, post):
            if reply.buffer.add(last):
                post(TextGathered())
        post(ReplyFinished(reply, last, explanation=reply.engine.explain()))
        if last is not None and last.stats is not None:
            note_reading(reply.engine, last.stats)
    except SlipstreamError as failure:
        post(ReplyFinished(reply, None, failure))


def note_reading(engine: Engine, stats: Stats) -> None:
    """Record how fast the model read a prompt, for estimates, if it was long enough to tell."""
    n_read = stats.prompt_n - stats.cached_n
    if n_read >= TELLING and stats.prompt_seconds > 0 and not engine.facts.upstream:
        with suppress(OSError):
            record(engine.pair.target, stats.prompt_seconds / n_read, reading_memo())


def chunks_of(reply: ActiveReply, post: Post) -> Iterator[Chunk]:
    """Return the engine's reply to the request. Raises SlipstreamError."""
    request = reply.request

    def on_prefill(done: int, total: int) -> None:
        if not reply.is_cancelled():
            post(PromptRead(done, total))

    engine = reply.engine
    ask = Ask(
        chat_prompt_of(request.prompt),
        request.sampling,
        request.max_tokens,
        () if engine.facts.template else PLAIN_STOPS,
        when_full="drop-oldest" if request.leaves_out else "stop",
        prediction=request.expected,
        is_admitted=True,  # the person goes before editors, and is never refused
        is_traced=True,
    )
    return engine.answer(ask, reply.is_cancelled, on_prefill)


def chat_prompt_of(prompt: Sequence[Message]) -> ChatPrompt:
    """Return the conversation; a last message of the model becomes the beginning of its reply."""
    if prompt[-1].role != "assistant":
        return ChatPrompt(tuple(prompt), plain=True)
    return ChatPrompt(tuple(prompt[:-1]), prompt[-1].content, plain=True)
