"""What runs in the engine's threads: a pair is opened, a reply is made.

Posts messages; touches no widget and keeps no state.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

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
from app.tui.session import OpenEngine
from app.tui.shared_engine import SharedEngine
from runtime.core.errors import SlipstreamError
from runtime.engine import Chunk, Ids, Message, Options
from runtime.models.registry import Pair


def open_pair(
    open_engine: OpenEngine, pair: Pair, options: Options, is_unwanted: Callable[[], bool], post: Post
) -> None:
    """Opens a pair, with progress."""

    def report(part: str, share: float) -> bool:
        post(ModelLoading(part, share))
        return not is_unwanted()

    began = time.perf_counter()
    try:
        engine = SharedEngine(open_engine(pair, options, report))
    except SlipstreamError as error:
        post(ModelFailed(str(error)))
    except KeyboardInterrupt:  # what the loader makes of a `False`
        return
    else:
        post(ModelReady(engine, time.perf_counter() - began))


def make_reply(reply: ActiveReply, post: Post) -> None:
    """Makes a reply until it ends, is cancelled or fails."""
    last: Chunk | None = None
    error = ""
    try:
        for last in chunks_of(reply, post):
            if reply.buffer.add(last):
                post(TextGathered())
    except SlipstreamError as failure:
        last, error = None, str(failure)
    post(ReplyFinished(reply, last, error))


def chunks_of(reply: ActiveReply, post: Post) -> Iterator[Chunk]:
    """What the engine says to the request. Raises SlipstreamError."""
    request = reply.request

    def on_prefill(done: int, total: int) -> None:
        post(PromptRead(done, total))

    return reply.engine.reply(
        engine_prompt(reply.engine, request.prompt),
        request.sampling,
        request.max_tokens,
        cancel=reply.is_cancelled,
        on_prefill=on_prefill,
        when_full="drop-oldest",
    )


def engine_prompt(engine: SharedEngine, prompt: Sequence[Message]) -> Sequence[Message] | Ids:
    """The prompt; one that ends with the model's own words as tokens, so that the reply goes on there."""
    if prompt[-1].role != "assistant":
        return prompt
    return Ids((*engine.encode(prompt[:-1]), *engine.tokenize(prompt[-1].content, special=False)))
