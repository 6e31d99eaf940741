"""The heads that were learned from one, with numbers, days and what was measured; which of them is used.

Number 0 is the head that all began with, which is never touched. Knows files; loads nothing.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter

from runtime.core.errors import SlipstreamError
from runtime.learning.place import VERSIONS, Place

KEPT = 4  # versions, beside the one that is used
ORIGINAL = 0


@dataclass(frozen=True, slots=True)
class Measured:
    """The head before and after a training, on the same positions of windows that were never trained on."""

    before: float  # share of draft tokens accepted, were all drafts as long
    after: float
    n_positions: int  # at which both drafted, whether or not a pass would have begun there
    rise: float  # of the share accepted, averaged over those
    error: float  # its standard error


@dataclass(frozen=True, slots=True)
class Version:
    """A head that took the place of another."""

    number: int
    parent: int  # that it was trained from
    time: float  # seconds since 1970
    n_windows: int  # trained on
    measured: Measured

    @property
    def file(self) -> str:
        """Its name in the folder."""
        return f"head-{self.number:04}.gguf"


@dataclass(frozen=True, slots=True)
class State:
    """All versions there are, oldest first, the one that is used, and what was seen up to the last training."""

    versions: tuple[Version, ...] = ()
    current: int = ORIGINAL
    n_made: int = 0
    n_discarded: int = 0  # trainings whose head was no better
    seen: str = ""  # the key of the newest window that a finished training knew
    last: Measured | None = None  # by the last training, whatever became of its head


class Versions:
    """Those of one place."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def read(self) -> State:
        """What is there; nothing where that cannot be read."""
        try:
            return TypeAdapter(State).validate_python(self.place.read(VERSIONS))
        except ValueError:
            return State()

    def _write(self, state: State) -> None:
        self.place.write(VERSIONS, asdict(state))

    def current(self) -> Path | None:
        """The head that is to be used; None: the original one."""
        state = self.read()
        found = next((each for each in state.versions if each.number == state.current), None)
        path = self.place.path / found.file if found else None
        return path if path and path.is_file() else None

    def take(self, head: Path, measured: Measured, n_windows: int, seen: str) -> Version:
        """A new head, a file in the same folder's work, takes the place of the one that is used. Raises OSError."""
        state = self.read()
        number = state.n_made + 1
        version = Version(number, state.current, time.time(), n_windows, measured)
        head.chmod(0o600)
        head.replace(self.place.path / version.file)
        kept = self._kept((*state.versions, version), number)
        self._write(State(kept, number, number, state.n_discarded, seen, measured))
        self._sweep(kept)
        return version

    def discard(self, head: Path, measured: Measured, seen: str) -> None:
        """Throws a head away that is no better. Raises OSError."""
        head.unlink(missing_ok=True)
        state = self.read()
        self._write(State(state.versions, state.current, state.n_made, state.n_discarded + 1, seen, measured))

    def revert(self, number: int) -> None:
        """Uses an older one from now on. Raises SlipstreamError naming those that there are."""
        state = self.read()
        numbers = [ORIGINAL, *(each.number for each in state.versions)]
        if number not in numbers:
            known = ", ".join(map(str, numbers))
            raise SlipstreamError(f"There is no version {number} of that head. There are: {known} (0 is the original).")
        try:
            self._write(State(state.versions, number, state.n_made, state.n_discarded, state.seen, state.last))
        except OSError as error:
            raise SlipstreamError(
                f"{self.place.path} cannot be written ({error.strerror}). Make room or give yourself the right to, "
                "and try again."
            ) from error

    @staticmethod
    def _kept(versions: tuple[Version, ...], current: int) -> tuple[Version, ...]:
        """The latest, and the one that is used."""
        latest = versions[-KEPT - 1 :]
        return tuple(each for each in versions if each in latest or each.number == current)

    def _sweep(self, kept: tuple[Version, ...]) -> None:
        """Removes the files of versions that are not kept; one that is in use elsewhere goes the next time."""
        names = {each.file for each in kept}
        for path in self.place.path.glob("head-*.gguf"):
            if path.name not in names:
                try:
                    path.unlink()
                except OSError:
                    continue
