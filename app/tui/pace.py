"""When to draw and when to work, so that nobody at the keyboard waits and drawing leaves the processor to the model.
Other work is done in threads, which post messages and touch no widget; invisible widgets own them.

Knows clocks, the times of key presses and the number of cores; knows no visible widget.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from runtime.core.cores import n_cores

FIRST = 0.1  # seconds until a reply is first shown: a fast model has generated most of it by then
PAUSE = 0.04  # minimal seconds for which text is gathered before it is shown
MAX_INTERVAL = 0.5  # maximal seconds between two updates, whatever drawing costs
SHARE = 0.08  # maximal share of the time spent on drawing
SWITCH = 1e-4  # seconds for which a thread may hold the interpreter: a pass requires it about thirty times
TYPING = 0.3  # seconds after a key within which another one is likely
FEW_CORES = 2  # up to which other work slows down typing and scrolling
AWAY = 180.0  # seconds without a sign of anybody, after which nobody reads or types

Post = Callable[[Message], object]


class Pace:
    """The pauses between two updates of one reply. Used in the drawing thread."""

    def __init__(self) -> None:
        self._worked: float | None = None  # CPU seconds of this thread at the last call

    def pause(self) -> float:
        """Return the seconds to gather text, long enough that the work since the last call is a small share of the
        time.
        """
        now = time.thread_time()
        before, self._worked = self._worked, now
        return FIRST if before is None else min(MAX_INTERVAL, max(PAUSE, (now - before) / SHARE))


class TypingGap:
    """Runs slow work right after a key is drawn, when the next key is farthest away, or immediately without typing."""

    def __init__(self) -> None:
        self._typed = float("-inf")
        self._waiting: Callable[[], object] | None = None

    def note_key(self) -> None:
        """Record the time of a key press."""
        self._typed = time.monotonic()

    def use(self) -> None:
        """Run the waiting work: the key is on screen, or none was pressed."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting()

    def wait(self, work: Callable[[], object], set_timer: Callable[[float, Callable[[], None]], object]) -> None:
        """Run `work` in the next gap. `set_timer` calls a function after a number of seconds."""
        self._waiting = work
        if time.monotonic() - self._typed > TYPING:
            self.use()
        else:
            set_timer(TYPING, self.use)


class Presence:
    """The signs of somebody at the chat. Read in other threads."""

    def __init__(self) -> None:
        self._seen = time.monotonic()

    def note(self) -> None:
        """Record a sign: a key, the mouse, or a reply that is read now."""
        self._seen = time.monotonic()

    @property
    def is_disturbed_by_work(self) -> bool:
        """Whether work in the background would disturb somebody, which it does only where cores are few."""
        return n_cores() <= FEW_CORES and time.monotonic() - self._seen < AWAY


def show_in(part: Static, content: Content) -> None:
    """Show other text in a widget; lay out its surroundings again only if its height changes."""
    part.update(content, layout=False)
    room = part.content_size
    if part.get_content_height(room, room, room.width) != room.height:
        part.refresh(layout=True)


class Latest(Message):
    """A message of which only the latest of its kind matters, so that they never pile up."""

    def can_replace(self, message: Message) -> bool:
        """Return whether this one makes another message unnecessary."""
        return isinstance(message, type(self))


class Invisible(Widget):
    """A widget that owns work and is not drawn."""

    DEFAULT_CSS = "Invisible { display: none; }"
