"""A reply that is being generated: its request, the text so far, and whether it was cancelled.

Plain state between the thread that generates the reply and the loop that shows it; knows no widgets and no store.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Event, Lock

from app.chats.store import StoredMessage
from app.tui.pieces import Piece, clean, pieces_of
from runtime.engine import Chunk, Engine, Message, Sampling
from runtime.speculative.control.explain import Explanation, Pass

EXPLAIN = 0.5  # seconds between two explanations of the controller


@dataclass(frozen=True, slots=True)
class ReplyRequest:
    """A prompt, and the stored message to which the reply is added."""

    message: StoredMessage
    prompt: Sequence[Message]
    sampling: Sampling
    max_tokens: int | None
    expected: str = ""  # text that the reply is likely to repeat
    leaves_out: bool = True  # whether the oldest turns are left out when the context is full


@dataclass(slots=True)
class ReplyNews:
    """The new part of a reply since the last update."""

    pieces: list[Piece] = field(default_factory=list)
    passes: list[Pass] = field(default_factory=list)
    explanation: Explanation | None = None  # every EXPLAIN seconds


class ReplyBuffer:
    """Text on its way between threads, gathered so that a fast model never starves the keyboard."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._explained = engine, 0.0
        self._batch, self._lock = ReplyNews(), Lock()

    def add(self, chunk: Chunk) -> bool:
        """Add a chunk. Returns whether the buffer was empty."""
        passes, explanation = [chunk.made] if chunk.made is not None else [], None
        if time.monotonic() - self._explained >= EXPLAIN:
            self._explained, explanation = time.monotonic(), self._engine.explain()
        pieces = pieces_of_chunk(chunk, passes[-1].drafter if passes else "")
        with self._lock:
            batch, was_empty = self._batch, not (self._batch.passes or self._batch.pieces)
            batch.pieces += pieces
            batch.passes += passes
            batch.explanation = explanation or batch.explanation
        return was_empty

    def take(self) -> ReplyNews:
        """Empty the buffer and return its contents."""
        with self._lock:
            batch, self._batch = self._batch, ReplyNews()
        return batch


def pieces_of_chunk(chunk: Chunk, drafter: str) -> list[Piece]:
    """Return the chunk's text; its accepted draft tokens are marked with the drafter."""
    flags = [*chunk.drafted, *[False] * (len(chunk.pieces) - len(chunk.drafted))]
    return [
        Piece(clean(text), drafter if is_drafted else "")
        for text, is_drafted in zip(chunk.pieces, flags, strict=True)
        if text
    ]


class ActiveReply:
    """One reply from its request to its end. It begins with the text already in the message."""

    def __init__(self, engine: Engine, request: ReplyRequest) -> None:
        self.engine, self.request = engine, request
        self.message_id = request.message.id
        self.buffer = ReplyBuffer(engine)
        self.pieces = pieces_of(request.message)
        self._n_before = len(self.pieces)
        self.is_saved = True
        self._cancelled = Event()

    def collect(self) -> ReplyNews:
        """Move the new text from the buffer into the reply, and return it."""
        batch = self.buffer.take()
        self.pieces += batch.pieces
        self.is_saved = self.is_saved and not (batch.pieces or batch.passes)
        return batch

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
