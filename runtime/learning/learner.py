"""What an engine does about a head that learns: keeps where it was wrong, has it trained while nothing is asked, and
says which head is to be used.

Everything but a hold happens between replies, in `tend`. Knows no model; whoever asks it opens the head.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from runtime.core.draft import Tokens
from runtime.learning.conditions import LEARNS, needed_bytes, why_not_now
from runtime.learning.place import Place, place_of
from runtime.learning.trainer import TrainerProcess, command
from runtime.learning.versions import Versions
from runtime.learning.windows import Windows, n_since, window_of
from runtime.speculative.control.explain import Pass

QUIET = 10.0  # seconds without a reply, after which a training may begin or go on
MOST_NOTED = 16  # replies that are looked at between two looks; of more, the latest
ENOUGH = 12  # new windows that a training is begun for
PAUSE, MOST_PAUSE = 600.0, 9600.0  # seconds after a training that failed until the next, which double each time


class Made(NamedTuple):
    """A reply, which may still be made."""

    tokens: Tokens
    n_prompt: int
    passes: Sequence[Pass]


class Training(Protocol):
    """What trains, beside this process."""

    is_held: bool

    @property
    def is_running(self) -> bool:
        """Is it there, held or not?"""

    def start(self) -> None:
        """Begins. Raises OSError."""

    def hold(self) -> None:
        """Computes nothing from now on."""

    def go_on(self) -> None:
        """Computes again."""

    def ended(self) -> tuple[int, str] | None:
        """The exit code and the last line of one that has come to an end, told once."""

    def stop(self) -> None:
        """Ends it at once."""


class BackgroundLearner:
    """One head that learns beside one engine."""

    def __init__(
        self,
        target: Path,
        head: Path,
        n_vocab: int,
        place: Place,
        training: Training,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._target, self._head, self.place, self._training, self._clock = target, head, place, training, clock
        self._needed = needed_bytes(target, head)
        self._windows, self._versions = Windows(place.windows, n_vocab), Versions(place)
        self._noted: deque[Callable[[], Made]] = deque(maxlen=MOST_NOTED)
        self._n_new: int | None = None  # windows that no finished training knew; None: to be counted
        self._quiet_since = clock()
        self._waits_from, self._pause, self._why_waits = -math.inf, PAUSE, ""
        self.state = ""  # what it does, or why it does not, in a clause
        self._number = self._made_place()
        if self._number:
            self.state = "what is rejected is kept, and its head is trained on that while nothing is asked"

    def _made_place(self) -> str:
        """The number of its folder; "" where there can be none."""
        try:
            return self.place.make(self._target, self._head)
        except OSError as error:
            self.state = f"{self.place.path} cannot be written ({error.strerror})"
            return ""

    @property
    def head(self) -> Path | None:
        """The head that is to be used; None is the pair's own."""
        return self._versions.current()

    def reply_begins(self, made: Callable[[], Made], memory_level: str = "OK") -> None:
        """Nothing is trained while it is made; what it was when it is over is asked for at the next look."""
        self._noted.append(made)
        self._training.hold() if memory_level == "OK" else self._training.stop()

    def keep(self) -> None:
        """Keeps where the head was wrong in the replies since the last look, unless all was forgotten meanwhile."""
        before, self._number = self._number, self._made_place()
        if self._number != before:
            self._n_new = None
            self._training.stop()
        if self._noted:
            self._quiet_since = self._clock()
        while self._noted:
            tokens, n_prompt, passes = self._noted.popleft()()
            window = window_of(tokens, n_prompt, passes, LEARNS) if self._number == before else None
            if window is not None and self._number:
                self._windows.add(window)
                self._n_new = None

    def tend(self, memory_level: str) -> None:
        """Between replies: keeps what was noted, and begins, goes on with or ends a training."""
        self.keep()
        self._take_end()
        self.state = self._why_not(memory_level)
        if self.state:
            return
        if not self._training.is_running:
            try:
                self._training.start()
            except OSError as error:
                self._fail(f"the training could not be started ({error.strerror})")
                return
        self._training.go_on()
        self.state = "it is trained on what was rejected lately"

    def _why_not(self, memory_level: str) -> str:
        """Why nothing is trained now; what must not even wait is ended."""
        if not self._number:
            return self.state
        if why := why_not_now(memory_level, 0 if self._training.is_running else self._needed):
            self._training.stop()
            return why
        now = self._clock()
        if now - self._quiet_since < QUIET:
            return f"nothing was asked for less than {QUIET:.0f} s"
        if self._training.is_running:
            return ""
        if now - self._waits_from < self._pause:
            return self._why_waits
        n_new = self._count_new()
        return "" if n_new >= ENOUGH else f"{n_new} replies with rejected drafts since the last time, of {ENOUGH}"

    def _count_new(self) -> int:
        """Windows that no finished training knew."""
        if self._n_new is None:
            self._n_new = n_since(self._windows.read(), self._versions.read().seen)
        return self._n_new

    def _take_end(self) -> None:
        """Takes note of a training that has come to an end."""
        ended = self._training.ended()
        if ended is None:
            return
        code, said = ended
        self._n_new = None
        if code:
            self._fail(said or f"the training ended with code {code}")
        elif self._count_new() >= ENOUGH:  # it could do nothing with them
            self._wait(said)
        else:
            self._waits_from, self._pause = -math.inf, PAUSE

    def _fail(self, why: str) -> None:
        self._wait(f"the last training failed: {why.rstrip('.')}")

    def _wait(self, why: str) -> None:
        """Nothing is trained for a while, which is longer each time."""
        self._pause = min(2 * self._pause, MOST_PAUSE) if self._waits_from > -math.inf else PAUSE
        self._waits_from = self._clock()
        self.state = self._why_waits = why

    def close(self) -> None:
        """Keeps what was rejected; ends a training, which begins anew at the next start."""
        self.keep()
        self._training.stop()


def learner_of(target: Path, head: Path, n_vocab: int) -> BackgroundLearner:
    """The learner of a head. Raises OSError where a file cannot be looked at."""
    place = place_of(target, head)
    training = TrainerProcess(command(place.path, target, head, needed_bytes(target, head)))
    return BackgroundLearner(target, head, n_vocab, place, training)
