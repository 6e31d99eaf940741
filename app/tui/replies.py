"""One reply: its request, the thread that generates it, the text so far, and how it ended.

The thread posts messages and touches no widget; the loop that shows the reply collects what is new. Knows engines;
knows no store.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event, Lock
from typing import Any

from textual.message import Message as Posted

from app.chats.branch import CONTINUE_HINT, FULL_AT, NO_ROOM, TOO_LONG
from app.chats.pictures import shown_to
from app.chats.store import StoredMessage
from app.reply_text import Piece, pieces_of
from app.terminal import clean
from app.tui.pace import Latest, Post
from runtime.core.errors import ContextError, SlipstreamError
from runtime.engine import PLAIN_STOPS, ChatPrompt, Chunk, Engine, Message, Prompt, Sampling
from runtime.engine.engine import Ask
from runtime.engine.stats import Stats
from runtime.loading.profile_cache import reading_memo, record
from runtime.speculative.control.explain import Explanation, Pass

EXPLAIN = 0.5  # seconds between two explanations of the controller
TELLING = 100  # tokens of a prompt, from which on its reading tells a speed
STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class ReplyRequest:
    """A prompt, and the stored message to which the reply is added."""

    message: StoredMessage
    prompt: Sequence[Message]
    sampling: Sampling
    max_tokens: int | None
    expected: str = ""  # text that the reply is likely to repeat
    leaves_out: bool = True  # whether the oldest turns are left out when the context is full
    images: tuple[bytes, ...] = ()  # files of the pictures whose marks the prompt has


@dataclass(slots=True)
class ReplyNews:
    """The new part of a reply since the last update."""

    pieces: list[Piece] = field(default_factory=list)
    passes: list[Pass] = field(default_factory=list)
    explanation: Explanation | None = None  # every EXPLAIN seconds


class ActiveReply:
    """One reply from its request to its end. It begins with the text already in the message.

    New text is gathered until it is collected, so that a fast model never starves the keyboard.
    """

    def __init__(self, engine: Engine, request: ReplyRequest) -> None:
        self.engine, self.request = engine, request
        self.message_id = request.message.id
        self.pieces = pieces_of(request.message.content, request.message.facts)
        self._n_before = len(self.pieces)
        self.is_saved = True
        self._news, self._lock, self._explained = ReplyNews(), Lock(), 0.0
        self._cancelled = Event()

    def add(self, chunk: Chunk) -> bool:
        """Add a chunk to the news. Returns whether there were none. Called in the thread."""
        passes, explanation = [chunk.made] if chunk.made is not None else [], None
        if time.monotonic() - self._explained >= EXPLAIN:
            self._explained, explanation = time.monotonic(), self.engine.explain()
        pieces = pieces_of_chunk(chunk, passes[-1].drafter if passes else "")
        with self._lock:
            news, was_empty = self._news, not (self._news.passes or self._news.pieces)
            news.pieces += pieces
            news.passes += passes
            news.explanation = explanation or news.explanation
        return was_empty

    def collect(self) -> ReplyNews:
        """Add the new text to the reply, and return what is new."""
        with self._lock:
            news, self._news = self._news, ReplyNews()
        self.pieces += news.pieces
        self.is_saved = self.is_saved and not (news.pieces or news.passes)
        return news

    @property
    def has_only_begun(self) -> bool:
        """Whether the reply had text before, and got none since."""
        return 0 < self._n_before == len(self.pieces)

    def cancel(self) -> None:
        """End the reply at the next token."""
        self._cancelled.set()

    def is_cancelled(self) -> bool:
        """Return whether the reply was cancelled. Called in the thread."""
        return self._cancelled.is_set()


def pieces_of_chunk(chunk: Chunk, drafter: str) -> list[Piece]:
    """Return the chunk's text; its accepted draft tokens are marked with the drafter."""
    flags = [*chunk.drafted, *[False] * (len(chunk.pieces) - len(chunk.drafted))]
    return [
        Piece(clean(text), drafter if is_drafted else "")
        for text, is_drafted in zip(chunk.pieces, flags, strict=True)
        if text
    ]


@dataclass
class PromptRead(Latest):
    """`done` of the prompt's `total` tokens are read."""

    done: int
    total: int


class TextGathered(Posted):
    """There is something to collect from the reply again."""


@dataclass
class ReplyFinished(Posted):
    """The reply is complete, was stopped, or failed, with the controller's explanation after it."""

    reply: ActiveReply
    last: Chunk | None
    error: SlipstreamError | None = None
    explanation: Explanation | None = None


def make_reply(reply: ActiveReply, post: Post) -> None:
    """Generate a reply until it ends, is cancelled or fails. Runs in a thread."""
    last: Chunk | None = None
    try:
        for last in chunks_of(reply, post):
            if reply.add(last):
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

    ask = Ask(
        prompt_for(reply.engine, request),
        request.sampling,
        request.max_tokens,
        () if reply.engine.facts.template else PLAIN_STOPS,
        when_full="drop-oldest" if request.leaves_out else "stop",
        prediction=request.expected,
        is_admitted=True,  # the person goes before editors, and is never refused
        is_traced=True,
    )
    return reply.engine.answer(ask, reply.is_cancelled, on_prefill)


def prompt_for(engine: Engine, request: ReplyRequest) -> Prompt:
    """Return the conversation, with its pictures if the model sees."""
    return shown_to(chat_prompt_of(request.prompt), request.images if engine.facts.vision else ())


def chat_prompt_of(prompt: Sequence[Message]) -> ChatPrompt:
    """Return the conversation; a last message of the model becomes the beginning of its reply."""
    if prompt[-1].role != "assistant":
        return ChatPrompt(tuple(prompt), plain=True)
    return ChatPrompt(tuple(prompt[:-1]), prompt[-1].content, plain=True)


def end_of(last: Chunk | None, reply: ActiveReply) -> dict[str, Any]:
    """Return the facts of a reply that did not end by itself."""
    reason, most = last.finish_reason if last is not None else None, reply.request.max_tokens
    if reason == "cancelled":
        return {"end": STOPPED}
    if last is None or reason != "length":
        return {}
    is_full = most is None or (last.stats is not None and last.stats.predicted_n < most)
    return out_of_room(reply) if is_full else {"end": "cut off" + CONTINUE_HINT}


def out_of_room(reply: ActiveReply) -> dict[str, Any]:
    """Return the facts of a reply for which the context has no more room."""
    may_leave_out = sum(each.role == "user" for each in reply.request.prompt) > 1 and not reply.request.leaves_out
    end = "cut off: the context is full" if reply.pieces else "no room: the context is full"
    return {"end": end, FULL_AT: reply.engine.facts.n_ctx} | ({NO_ROOM: True} if may_leave_out else {})


def failure_of(error: SlipstreamError, reply: ActiveReply) -> tuple[dict[str, Any], str]:
    """Return the facts of a reply that failed, and a sentence for people."""
    n_prompt = error.n_prompt if isinstance(error, ContextError) else 0
    if not n_prompt:
        return {"end": "broken off" + CONTINUE_HINT if reply.pieces else "no reply came"}, str(error)
    n_ctx, facts = reply.engine.facts.n_ctx, out_of_room(reply)
    letters = [len(each.content) for each in reply.request.prompt]
    if NO_ROOM in facts and letters[-1] / sum(letters) * n_prompt < n_ctx:  # the question alone fits into the context
        return facts, f"The context is full: the chat has {n_prompt} tokens or more, and it has room for {n_ctx}."
    more = ", /context makes room for it" if n_ctx < reply.engine.facts.n_ctx_train else ""
    if reply.pieces:
        return {"end": facts["end"]}, (
            f"The reply cannot continue: with its question it has {n_prompt} tokens, the context {n_ctx}. Ask "
            f"something else{more}."
        )
    return {"end": "left out: the question is too long", TOO_LONG: True}, (
        f"The question is too long: the prompt has {n_prompt} tokens or more, and the context holds {n_ctx}. /edit "
        f"shortens it{more}; your next question leaves it out."
    )
