"""Manages the further training of an engine's head: records its errors, trains it while idle, and selects the head.

Everything but pausing a training happens between replies, in `tend`. Knows no model; the caller opens the head.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from runtime.core.draft import Tokens
from runtime.core.errors import ModelError
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.models.heads import begins_for
from runtime.models.registry import Pair
from runtime.speculative.control.explain import Pass
from runtime.training import learned_head
from runtime.training.conditions import LEARNS, needed_bytes, why_not_now
from runtime.training.place import Place, place_of
from runtime.training.training_process import TrainerProcess
from runtime.training.windows import Windows, n_since, window_of

MODULE = "runtime.training.adapting"
QUIET = 10.0  # seconds without a reply, after which a training may start or continue
MAX_RECORDED = 16  # replies that are examined at each call; of more, the latest
MIN_WINDOWS = 12  # new windows that start a training
PAUSE = 3600.0  # seconds from a failed training to the next


class GeneratedReply(NamedTuple):
    """A reply, finished or still being generated."""

    tokens: Tokens
    n_prompt: int
    passes: Sequence[Pass]


class Pause(NamedTuple):
    """The time until which nothing is trained, and why, as a clause."""

    until: float = -math.inf
    why: str = ""


class BackgroundLearner:
    """The further training of one head in the background of one engine."""

    def __init__(
        self,
        target: Path,
        head: Path,
        n_vocab: int,
        place: Place,
        training: TrainerProcess,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.place, self._training, self._clock = place, training, clock
        self._about = {"target": str(target), "head": str(head)}
        self._needed = needed_bytes(target, head)
        self._windows = Windows(place.windows, n_vocab)
        self._noted: deque[Callable[[], GeneratedReply]] = deque(maxlen=MAX_RECORDED)
        self._n_new: int | None = None  # windows that no finished training has seen; None: not counted yet
        self._quiet_since = clock()
        self._pause = Pause()
        self.state = ""  # its activity, or why there is none, as a clause
        self._number = self._made_place()
        if self._number:
            self.state = "rejected drafts are kept, and its head is trained on them while idle"

    def _made_place(self) -> str:
        """Create the folder and return its number; "" where it cannot be created."""
        try:
            return self.place.make(self._about)
        except OSError as error:
            self.state = f"{self.place.path} cannot be written ({error.strerror})"
            return ""

    @property
    def head(self) -> Path | None:
        """The head to use; None is the pair's own."""
        return learned_head.current(self.place)

    def reply_begins(self, generated: Callable[[], GeneratedReply], memory_level: str = "OK") -> None:
        """Pause the training during a reply; the next `keep` after it calls `generated`, which returns the reply."""
        self._noted.append(generated)
        self._training.hold() if memory_level == "OK" else self._training.stop()

    def keep(self) -> None:
        """Record the head's errors in the replies since the last call, unless everything was deleted in between."""
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
        """Between replies: record the head's errors, and start, continue or end a training."""
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
        self._training.resume()
        self.state = "it is being trained on recently rejected drafts"

    def _why_not(self, memory_level: str) -> str:
        """Return why nothing is trained now, or ""; end a training that must not even stay paused."""
        if not self._number:
            return self.state
        if why := why_not_now(memory_level, 0 if self._training.is_running else self._needed):
            self._training.stop()
            return why
        now = self._clock()
        if now - self._quiet_since < QUIET:
            return f"it has been idle for less than {QUIET:.0f} s"
        if self._training.is_running:
            return ""
        if now < self._pause.until:
            return self._pause.why
        n_new = self._count_new()
        is_enough = n_new >= MIN_WINDOWS
        return "" if is_enough else f"{n_new} of {MIN_WINDOWS} replies with rejected drafts since the last time"

    def _count_new(self) -> int:
        """Return the number of windows that no finished training has seen."""
        if self._n_new is None:
            self._n_new = n_since(self._windows.read(), learned_head.read(self.place).seen)
        return self._n_new

    def _take_end(self) -> None:
        """Handle a training that has ended."""
        ended = self._training.ended()
        if ended is None:
            return
        code, output = ended
        self._n_new = None
        if code:
            self._fail(output or f"the training ended with code {code}")
        elif self._count_new() >= MIN_WINDOWS:  # it could not use them
            self._wait(output)
        else:
            self._pause = Pause()

    def _fail(self, why: str) -> None:
        self._wait(f"the last training failed: {why.rstrip('.')}")

    def _wait(self, why: str) -> None:
        """Train nothing for a while."""
        self._pause = Pause(self._clock() + PAUSE, why)
        self.state = why

    def close(self) -> None:
        """Record the head's errors, and end a training, which starts again with the next process."""
        self.keep()
        self._training.stop()


def replacing_head(pair: Pair) -> Path | None:
    """Return the learned head that replaces a pair's own, even where none can be trained now; None without one."""
    if pair.learn and pair.draft is not None and begins_for(pair.draft) == LEARNS:
        with suppress(OSError):
            return learned_head.current(place_of(pair.target, pair.draft))
    return None


def opened_learner(pair: Pair) -> BackgroundLearner | None:
    """Return the learner of a pair whose draft is a head; None without a draft or where a file cannot be read."""
    target, head = pair.target, pair.draft
    if head is None:
        return None
    with suppress(OSError, ModelError):
        n_vocab, place = ModelFacts(read_model_header(target)).n_vocab, place_of(target, head)
        training = TrainerProcess(MODULE, place.path, target, head)
        return BackgroundLearner(target, head, n_vocab, place, training)
    return None
