"""Messages from the engine's threads and EngineHost.

Each reports an event and does nothing. Knows no widgets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from textual.message import Message

from app.tui.background.active_reply import ActiveReply
from app.tui.pieces import Piece
from runtime.core.errors import SlipstreamError
from runtime.engine import Chunk, Engine
from runtime.models.registry import Pair
from runtime.speculative.control.explain import Explanation

Post = Callable[[Message], object]


class ModelLoading(Message):
    """A share of one of the pair's models is loaded."""

    def __init__(self, part: str, share: float) -> None:
        super().__init__()
        self.part, self.share = part, share

    def can_replace(self, message: Message) -> bool:
        """Only the latest share matters."""
        return isinstance(message, ModelLoading)


class ModelReady(Message):
    """A pair is open."""

    def __init__(self, pair: Pair, engine: Engine, seconds: float) -> None:
        super().__init__()
        self.pair, self.engine, self.seconds = pair, engine, seconds


class ModelFailed(Message):
    """A pair cannot be opened; the reason is for people."""

    def __init__(self, pair: Pair, reason: str) -> None:
        super().__init__()
        self.pair, self.reason = pair, reason


class MemoryChanged(Message):
    """The engine dropped something for lack of memory, or restored it."""


class PromptRead(Message):
    """`done` of the prompt's `total` tokens are read."""

    def __init__(self, done: int, total: int) -> None:
        super().__init__()
        self.done, self.total = done, total

    def can_replace(self, message: Message) -> bool:
        """Only the latest progress matters."""
        return isinstance(message, PromptRead)


class TextGathered(Message):
    """From the thread: the reply's buffer is no longer empty."""


class ReplyGrew(Message):
    """It is time to show the new text of the reply, which EngineHost.collect returns."""

    def can_replace(self, message: Message) -> bool:
        """One message is enough, as collecting returns everything."""
        return isinstance(message, ReplyGrew)


class ReplyFinished(Message):
    """From the thread: the reply is complete, was stopped, or failed, with the controller's explanation after it."""

    def __init__(
        self,
        reply: ActiveReply,
        last: Chunk | None,
        error: SlipstreamError | None = None,
        explanation: Explanation | None = None,
    ) -> None:
        super().__init__()
        self.reply, self.last, self.error, self.explanation = reply, last, error, explanation


class ReplyEnded(Message):
    """The reply is complete, was stopped or has failed, and is stored; a remark is for people."""

    def __init__(
        self, message_id: int, pieces: Sequence[Piece], facts: dict[str, Any], remark: str, has_failed: bool
    ) -> None:
        super().__init__()
        self.message_id, self.pieces, self.facts, self.remark = message_id, pieces, facts, remark
        self.has_failed = has_failed
