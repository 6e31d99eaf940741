"""One question is answered by two models, one after the other, so that neither disturbs the other's speed.

Runs in a thread and posts messages; knows engines and requests, and no widget.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from textual.message import Message

from app.chats.store import StoredMessage
from app.tui.background.active_reply import ActiveReply, ReplyRequest
from app.tui.background.events import Post
from app.tui.background.reply_worker import make_reply
from app.tui.shared_engine import SharedEngine
from runtime.core.errors import NoMemoryError, SlipstreamError

Report = Callable[[str, float], bool]


@dataclass(frozen=True, slots=True)
class Contestant:
    """A model that is to answer: its name, how it is opened, and what it is asked."""

    name: str
    open: Callable[[Report], SharedEngine]
    request: ReplyRequest
    is_borrowed: bool = False  # it is open, and stays so


class ReplyBegan(Message):
    """The model on that side is open and answers now."""

    def __init__(self, side: int, reply: ActiveReply) -> None:
        super().__init__()
        self.side, self.reply = side, reply


class SideLoading(Message):
    """A share of the model on that side is loaded."""

    def __init__(self, side: int, share: float) -> None:
        super().__init__()
        self.side, self.share = side, share

    def can_replace(self, message: Message) -> bool:
        """The latest says it all."""
        return isinstance(message, SideLoading)


class SideFailed(Message):
    """The model on that side cannot be opened, for a reason."""

    def __init__(self, side: int, reason: str) -> None:
        super().__init__()
        self.side, self.reason = side, reason


def blank(side: int) -> StoredMessage:
    """A reply that is nowhere kept, with nothing in it."""
    return StoredMessage(-1 - side, None, "assistant", "", {})


def compare(contestants: Sequence[Contestant], is_unwanted: Callable[[], bool], post: Post) -> None:
    """Has each answer in turn, until nobody wants to know."""
    for side, contestant in enumerate(contestants):
        if not is_unwanted():
            answer(side, contestant, is_unwanted, post)


def answer(side: int, contestant: Contestant, is_unwanted: Callable[[], bool], post: Post) -> None:
    """Opens a model, has it answer, and closes it again."""

    def report(part: str, share: float) -> bool:
        post(SideLoading(side, share))
        return not is_unwanted()

    try:
        engine = contestant.open(report)
    except NoMemoryError as error:
        post(SideFailed(side, f"{error} Both models are in memory at once here."))
    except SlipstreamError as error:
        post(SideFailed(side, str(error)))
    except KeyboardInterrupt:  # what the loader makes of a `False`
        return
    else:
        try:
            reply = ActiveReply(engine, contestant.request)
            post(ReplyBegan(side, reply))
            make_reply(reply, post)
        finally:
            if not contestant.is_borrowed:
                engine.close()


def opened_whole(opened: Callable[[Report], SharedEngine], report: Report) -> SharedEngine:
    """An engine for a comparison. Raises NoMemoryError for one that memory leaves less than it would have."""
    engine = opened(report)
    if engine.facts.is_short:
        engine.close()
        raise NoMemoryError("Memory does not suffice for two models.")
    return engine


def letters_per_second(text: str, seconds: float) -> float:
    """How fast text came; tokens per second say little across vocabularies."""
    return len(text) / seconds if seconds else 0.0
