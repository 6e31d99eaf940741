"""A reply that is being made: what was asked, what has come, and whether the rest is still wanted.

Plain state between the thread that makes the reply and the loop that shows it; knows no widgets and no store.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Event, Lock

from app.chats.store import StoredMessage
from app.tui.pieces import Piece, clean, pieces_of
from app.tui.shared_engine import SharedEngine
from runtime.engine import Chunk, Message, Sampling
from runtime.speculative.control.explain import Explanation, Pass

EXPLAIN = 0.5  # seconds between two looks at the controller


@dataclass(frozen=True, slots=True)
class ReplyRequest:
    """A prompt, and the kept message that the answer is to be added to."""

    message: StoredMessage
    prompt: Sequence[Message]
    sampling: Sampling
    max_tokens: int | None
    expected: str = ""  # text that the reply is likely to repeat
    leaves_out: bool = True  # the oldest turns, where the context is full


@dataclass(slots=True)
class ReplyNews:
    """What came of a reply since the last look."""

    pieces: list[Piece] = field(default_factory=list)
    passes: list[Pass] = field(default_factory=list)
    explanation: Explanation | None = None  # where it was time for a new one


class ReplyBuffer:
    """Text on its way between threads, gathered so that a fast model never starves the keyboard."""

    def __init__(self, engine: SharedEngine) -> None:
        self._engine = engine
        self._n_passes, self._explained = 0, 0.0
        self._batch, self._lock = ReplyNews(), Lock()

    def add(self, chunk: Chunk) -> bool:
        """Adds a chunk. Was the buffer empty?"""
        passes, explanation = self._engine.passes(self._n_passes), None
        self._n_passes += len(passes)
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
        """Empties the buffer."""
        with self._lock:
            batch, self._batch = self._batch, ReplyNews()
        return batch


def pieces_of_chunk(chunk: Chunk, drafter: str) -> list[Piece]:
    """The chunk's text; its accepted draft tokens are the drafter's."""
    flags = [*chunk.drafted, *[False] * (len(chunk.pieces) - len(chunk.drafted))]
    return [
        Piece(clean(text), drafter if is_drafted else "")
        for text, is_drafted in zip(chunk.pieces, flags, strict=True)
        if text
    ]


class ActiveReply:
    """One reply from its request to its end. Begins with what the message says already."""

    def __init__(self, engine: SharedEngine, request: ReplyRequest) -> None:
        self.engine, self.request = engine, request
        self.message_id = request.message.id
        self.buffer = ReplyBuffer(engine)
        self.pieces = pieces_of(request.message)
        self._n_before = len(self.pieces)
        self.is_saved = True
        self._cancelled = Event()

    def collect(self) -> ReplyNews:
        """Takes what has come into the reply, and returns it."""
        batch = self.buffer.take()
        self.pieces += batch.pieces
        self.is_saved = self.is_saved and not (batch.pieces or batch.passes)
        return batch

    @property
    def has_only_begun(self) -> bool:
        """Was there text before, and has none come since?"""
        return 0 < self._n_before == len(self.pieces)

    def cancel(self) -> None:
        """Ends the reply at the next token."""
        self._cancelled.set()

    def is_cancelled(self) -> bool:
        """Does nobody want the rest? Asked in the thread."""
        return self._cancelled.is_set()
