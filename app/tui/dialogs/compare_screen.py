"""Two models answer one question side by side, with their speeds; one of the replies may be kept.

Knows its contestants; knows no chat.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import Event
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.timer import Timer
from textual.widgets import Static

from app.reply_text import Piece
from app.terminal import clean
from app.tui.comparison import (
    Contestant,
    ReplyBegan,
    SideFailed,
    SideLoading,
    blank,
    compare,
)
from app.tui.numbers import ChatNumbers, fitted, rate, speed, stats_of, usage
from app.tui.replies import ActiveReply, PromptRead, ReplyFinished
from app.tui.terminal import copy_text
from app.tui.widgets.message_view import MessageView
from app.tui.widgets.status import ReadingEstimate
from runtime.engine.stats import Stats

LOOKS = 0.1  # seconds between two updates of the replies
ALIKE = 1.05  # ratio of speeds, up to which two models count as equally fast
MARKS = "marks"  # fact of a reply: the drafter of each character
KEYS = "1 or 2 keeps that reply in the chat · Esc leaves"


@dataclass(frozen=True, slots=True)
class KeptReply:
    """The chosen reply: its model, its text by drafter, and its numbers."""

    model: str
    pieces: Sequence[Piece]
    stats: Stats


class Side(Vertical):
    """One model's name, state and reply."""

    def __init__(self, contestant: Contestant, at: int) -> None:
        super().__init__(classes="side")
        self.contestant, self.numbers, self.reading = contestant, ChatNumbers(), ReadingEstimate()
        given = contestant.request.message
        self.view = MessageView(replace(given, id=blank(at).id, facts={MARKS: given.facts.get(MARKS, [])}), (1, 1))
        self.is_done, self._is_followed = contestant.has_answered, False
        if self.is_done:
            self.numbers.reply = stats_of(given.facts)

    def compose(self) -> ComposeResult:
        """Yield the name, the state, and the reply, which scrolls."""
        yield Static(Content.styled(clean(self.contestant.name), "bold"), markup=False)
        yield Static(" · ".join(speed(self.numbers.reply)) if self.is_done else "waits", classes="state", markup=False)
        with VerticalScroll(can_focus=False):
            yield self.view

    def say(self, state: str) -> None:
        """Show the state."""
        self.query_one(".state", Static).update(state)

    def say_numbers(self, numbers: list[str]) -> None:
        """Show as many numbers as fit on a line, so that both replies begin on the same one."""
        self.say(fitted(numbers, self.query_one(".state").content_size.width))

    async def grow(self, reply: ActiveReply) -> None:
        """Show the new text since the last update, and the speed."""
        batch = reply.collect()
        self.numbers.add(batch.passes, batch.explanation)
        if batch.pieces:
            await self.view.append(batch.pieces)
            self.call_after_refresh(self._follow)
            self.say_numbers([rate(self.numbers.reply), *usage(self.numbers.reply, reply.engine.facts.n_ctx)[:1]])
        elif not self.view.text:
            self.say(self.reading.text(time.monotonic()))

    def _follow(self) -> None:
        """Stay at the end of a reply longer than the screen; an anchor would put a short one at the bottom."""
        around = self.query_one(VerticalScroll)
        if around.max_scroll_y and not self._is_followed:
            self._is_followed = True
            around.anchor()

    async def end(self, reply: ActiveReply, stats: Stats | None, error: str) -> None:
        """Show the whole reply with its numbers."""
        await self.grow(reply)
        self.numbers.reply, self.is_done = stats or self.numbers.reply, not error
        await self.view.settle(reply.pieces, {})
        self.call_after_refresh(self._follow)
        if error:
            self.say(error)
        else:
            self.say_numbers(speed(self.numbers.reply) if self.numbers.reply.predicted_n else [])

    @property
    def speed(self) -> float:
        """Letters per second of decoding, as tokens of two vocabularies cannot be compared; 0.0 before there is a
        reply.
        """
        seconds = self.numbers.reply.decode_seconds if self.is_done else 0.0
        return len(self.view.text) / seconds if seconds else 0.0

    def kept(self) -> KeptReply:
        """Return the reply to be kept."""
        return KeptReply(self.contestant.name, self.view.pieces, self.numbers.reply)


class CompareScreen(Screen[KeptReply]):
    """Both sides. Returns the reply to keep, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss", "Back"),
        Binding("1", "keep(0)", show=False),
        Binding("2", "keep(1)", show=False),
    ]

    def __init__(self, question: str, contestants: Sequence[Contestant]) -> None:
        super().__init__()
        self._question, self._contestants = question, contestants
        self._sides = [Side(each, at) for at, each in enumerate(contestants)]
        self._unwanted = Event()
        self._now: tuple[Side, ActiveReply] | None = None
        self._looks: Timer | None = None

    def compose(self) -> ComposeResult:
        """Yield the question, the sides, the outcome."""
        yield Static(clean(" ".join(self._question.split())), id="question", markup=False)
        with Horizontal(id="sides"):
            yield from self._sides
        yield Static(KEYS, id="outcome", markup=False)

    def on_mount(self) -> None:
        """Start the comparison."""
        self._looks = self.set_interval(LOOKS, self._look)
        work = partial(compare, self._contestants, self._unwanted.is_set, self.post_message)
        self.run_worker(work, thread=True, group="comparison")

    def on_unmount(self) -> None:
        """Cancel; the thread ends at the next token, or once the model that it loads is open."""
        self._unwanted.set()
        if self._now is not None:
            self._now[1].cancel()

    @on(SideLoading)
    def show_loading(self, event: SideLoading) -> None:
        """Show how much of a model is loaded; after that it is measured."""
        self._sides[event.side].say(f"loading, {event.share:.0%}" if event.share < 1 else "measuring")

    @on(SideFailed)
    def show_failure(self, event: SideFailed) -> None:
        """Show why there is no reply on that side."""
        self._sides[event.side].say(event.reason)

    @on(ReplyBegan)
    def follow(self, event: ReplyBegan) -> None:
        """Show this reply from now on."""
        self._now = self._sides[event.side], event.reply
        self._now[0].reading.begin(time.monotonic())
        if self._unwanted.is_set():
            event.reply.cancel()

    @on(PromptRead)
    def show_reading(self, event: PromptRead) -> None:
        """Record how much of the prompt is read, which is shown from time to time."""
        if self._now is not None:
            self._now[0].reading.report(event.done, event.total, time.monotonic())

    async def _look(self) -> None:
        if self._now is not None:
            side, reply = self._now
            await side.grow(reply)

    @on(ReplyFinished)
    async def show_end(self, event: ReplyFinished) -> None:
        """Show the whole reply, and the faster model once both replies are complete."""
        event.stop()
        if self._now is not None:
            (side, _), self._now = self._now, None
            await side.end(event.reply, event.last.stats if event.last is not None else None, str(event.error or ""))
        self.query_one("#outcome", Static).update(" · ".join(filter(None, [outcome(self._sides), KEYS])))

    @on(MessageView.Requested)
    def copy(self, event: MessageView.Requested) -> None:
        """Copy a reply, or its last code block."""
        if event.what == "copy":
            copy_text(self, event.view.text, "reply")
        elif event.what == "copy_code":
            copy_text(self, event.view.code(), "code block")

    def action_keep(self, at: int) -> None:
        """Return a reply if it is complete; one that is in the chat already stays there alone."""
        if self._contestants[at].has_answered:
            self.dismiss(None)
        elif self._sides[at].is_done:
            self.dismiss(self._sides[at].kept())
        else:
            self.notify("There is no reply to keep yet.")


def outcome(sides: Sequence[Side]) -> str:
    """Return which model writes faster, in letters as their tokens differ; "" before both have replied."""
    slow, fast = sorted(sides, key=lambda side: side.speed)
    if not slow.speed:
        return ""
    times = fast.speed / slow.speed
    if times <= ALIKE:
        return "Both write about as fast"
    return f"{clean(fast.contestant.name)} is {times:.1f} times as fast"
