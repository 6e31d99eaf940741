"""Two models answer one question, one after the other so that neither slows the other down.

Runs in a thread and posts messages; knows engines and requests, and no widget.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from textual.message import Message

from app.chats.store import StoredMessage
from app.tui.pace import Latest, Post
from app.tui.replies import ActiveReply, ReplyRequest, make_reply
from runtime.core.errors import NoMemoryError, SlipstreamError
from runtime.engine import Engine

Report = Callable[[str, float], bool]


@dataclass(frozen=True, slots=True)
class Contestant:
    """A model of the comparison: its name, a function that opens it, and the request."""

    name: str
    open: Callable[[Report], Engine]
    request: ReplyRequest
    is_borrowed: bool = False  # whether it is the chat's engine, which stays open
    has_answered: bool = False  # whether the message of the request is its reply already


@dataclass
class ReplyBegan(Message):
    """The model on that side is open and answers now."""

    side: int
    reply: ActiveReply


@dataclass
class SideLoading(Latest):
    """A share of the model on that side is loaded."""

    side: int
    share: float


@dataclass
class SideFailed(Message):
    """The model on that side cannot be opened; `reason` is for people."""

    side: int
    reason: str


def blank(side: int) -> StoredMessage:
    """Return an empty reply that is not in the store."""
    return StoredMessage(-1 - side, None, "assistant", "", {})


def compare(contestants: Sequence[Contestant], is_unwanted: Callable[[], bool], post: Post) -> None:
    """Run the contestants one after the other, until the comparison is cancelled."""
    for side, contestant in enumerate(contestants):
        if not (is_unwanted() or contestant.has_answered):
            answer(side, contestant, is_unwanted, post)


def answer(side: int, contestant: Contestant, is_unwanted: Callable[[], bool], post: Post) -> None:
    """Open a model, generate its reply, and close it again."""

    def report(part: str, share: float) -> bool:
        post(SideLoading(side, share))
        return not is_unwanted()

    try:
        engine = contestant.open(report)
    except NoMemoryError as error:
        post(SideFailed(side, f"{error} Both models are in memory at once here."))
    except SlipstreamError as error:
        post(SideFailed(side, str(error)))
    except KeyboardInterrupt:  # raised by the loader after `report` returned False
        return
    else:
        try:
            reply = ActiveReply(engine, contestant.request)
            post(ReplyBegan(side, reply))
            make_reply(reply, post)
        finally:
            if not contestant.is_borrowed:
                engine.close()
