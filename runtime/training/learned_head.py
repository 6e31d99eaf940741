"""The head of a place that was trained further, and how it was measured; the pair's own is never changed.

Knows files; loads nothing.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter

from runtime.core.errors import SlipstreamError
from runtime.training.place import LEARNED, Place

MIN_RISE = 0.01  # minimum rise of the share of correct predictions
SURE = 2.0  # minimum rise in standard errors


@dataclass(frozen=True, slots=True)
class Measured:
    """The head before and after a training, on the same texts, which were never trained on."""

    before: float  # share of draft tokens that the target confirms, if those before them were right
    after: float
    n_positions: int  # draft tokens that were compared
    error: float  # standard error of the rise

    @property
    def is_better(self) -> bool:
        """Whether the new head is better with statistical certainty."""
        rise = self.after - self.before
        return rise >= MIN_RISE and rise > SURE * self.error


@dataclass(frozen=True, slots=True)
class LearnedHead:
    """The head in use, and the trainings so far."""

    current: int = 0  # its number; 0 is the pair's own
    n_trained: int = 0
    n_discarded: int = 0  # trainings whose head was no better
    seen: str = ""  # the key of the newest window that a finished training has seen
    time: float = 0.0  # of the head in use, in seconds since 1970
    n_windows: int = 0  # that it was trained on
    measured: Measured | None = None  # when it replaced the one before
    last: Measured | None = None  # by the last training, whether or not its head was kept


def read(place: Place) -> LearnedHead:
    """Return the stored state; an empty one where it cannot be read."""
    try:
        return TypeAdapter(LearnedHead).validate_python(place.read(LEARNED))
    except ValueError:
        return LearnedHead()


def current(place: Place) -> Path | None:
    """Return the file of the head to use; None: the pair's own."""
    path = file_of(place, read(place).current)
    return path if path.is_file() else None


def file_of(place: Place, number: int) -> Path:
    """Return the path of the head with that number, which need not exist."""
    return place.path / f"head-{number:04}.gguf"


def take(place: Place, head: Path, measured: Measured, n_windows: int, seen: str) -> LearnedHead:
    """Replace the head in use by a new one, a file in the same place's `work`. Raises OSError."""
    state = read(place)
    number = state.n_trained + 1
    head.chmod(0o600)
    head.replace(file_of(place, number))
    state = LearnedHead(number, number, state.n_discarded, seen, time.time(), n_windows, measured, measured)
    _use(place, state)
    return state


def discard(place: Place, head: Path, measured: Measured, seen: str) -> None:
    """Delete a new head that is no better. Raises OSError."""
    head.unlink(missing_ok=True)
    state = read(place)
    place.write(LEARNED, asdict(replace(state, n_discarded=state.n_discarded + 1, seen=seen, last=measured)))


def revert(place: Place) -> None:
    """Use the pair's own head from now on, and delete the learned one. Raises SlipstreamError."""
    try:
        _use(place, replace(read(place), current=0, measured=None))
    except OSError as error:
        raise SlipstreamError(
            f"{place.path} cannot be written ({error.strerror}). Make room or change its permissions, and try again."
        ) from error


def _use(place: Place, state: LearnedHead) -> None:
    """Store the state, and remove other heads; a file in use elsewhere is removed the next time."""
    place.write(LEARNED, asdict(state))
    for path in place.path.glob("head-*.gguf"):
        if path != file_of(place, state.current):
            with suppress(OSError):
                path.unlink()
