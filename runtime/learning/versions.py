"""The learned versions of a head, with numbers, times and measurements, and the one in use.

Number 0 is the original head, which is never changed. Knows files; loads nothing.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter

from runtime.core.errors import SlipstreamError
from runtime.learning.place import VERSIONS, Place

KEPT = 4  # versions, besides the one in use
ORIGINAL = 0


@dataclass(frozen=True, slots=True)
class Measured:
    """The head before and after a training, on the same positions of windows that were never trained on."""

    before: float  # acceptance rate if all drafts had the same length
    after: float
    n_positions: int  # at which both drafted, even if no pass would have started there
    rise: float  # of the acceptance rate, averaged over the positions
    error: float  # its standard error


@dataclass(frozen=True, slots=True)
class Version:
    """A head that replaced another one."""

    number: int
    parent: int  # number of the version that it was trained from
    time: float  # seconds since 1970
    n_windows: int  # trained on
    measured: Measured

    @property
    def file(self) -> str:
        """Name of its file in the folder."""
        return f"head-{self.number:04}.gguf"


@dataclass(frozen=True, slots=True)
class State:
    """All existing versions, oldest first, the one in use, and the windows seen up to the last training."""

    versions: tuple[Version, ...] = ()
    current: int = ORIGINAL
    n_trained: int = 0
    n_discarded: int = 0  # trainings whose head was no better
    seen: str = ""  # the key of the newest window that a finished training has seen
    last: Measured | None = None  # by the last training, whether or not its head was kept


class Versions:
    """The versions of one place."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def read(self) -> State:
        """Return the stored state; an empty one where it cannot be read."""
        try:
            return TypeAdapter(State).validate_python(self.place.read(VERSIONS))
        except ValueError:
            return State()

    def _write(self, state: State) -> None:
        self.place.write(VERSIONS, asdict(state))

    def current(self) -> Path | None:
        """Return the file of the head to use; None: the original one."""
        state = self.read()
        found = next((each for each in state.versions if each.number == state.current), None)
        path = self.place.path / found.file if found else None
        return path if path and path.is_file() else None

    def take(self, head: Path, measured: Measured, n_windows: int, seen: str) -> Version:
        """Replace the head in use by a new one, a file in the same place's `work`. Raises OSError."""
        state = self.read()
        number = state.n_trained + 1
        version = Version(number, state.current, time.time(), n_windows, measured)
        head.chmod(0o600)
        head.replace(self.place.path / version.file)
        kept = self._kept((*state.versions, version), number)
        self._write(State(kept, number, number, state.n_discarded, seen, measured))
        self._sweep(kept)
        return version

    def discard(self, head: Path, measured: Measured, seen: str) -> None:
        """Delete a new head that is no better. Raises OSError."""
        head.unlink(missing_ok=True)
        state = self.read()
        self._write(State(state.versions, state.current, state.n_trained, state.n_discarded + 1, seen, measured))

    def revert(self, number: int) -> None:
        """Use another version from now on. Raises SlipstreamError naming the existing ones."""
        state = self.read()
        numbers = [ORIGINAL, *(each.number for each in state.versions)]
        if number not in numbers:
            known = ", ".join(map(str, numbers))
            raise SlipstreamError(f"There is no version {number} of that head. There are: {known} (0 is the original).")
        try:
            self._write(State(state.versions, number, state.n_trained, state.n_discarded, state.seen, state.last))
        except OSError as error:
            raise SlipstreamError(
                f"{self.place.path} cannot be written ({error.strerror}). Make room or change its permissions, "
                "and try again."
            ) from error

    @staticmethod
    def _kept(versions: tuple[Version, ...], current: int) -> tuple[Version, ...]:
        """Return the latest versions and the one in use."""
        latest = versions[-KEPT - 1 :]
        return tuple(each for each in versions if each in latest or each.number == current)

    def _sweep(self, kept: tuple[Version, ...]) -> None:
        """Remove the files of versions that are not kept; a file in use elsewhere is removed the next time."""
        names = {each.file for each in kept}
        for path in self.place.path.glob("head-*.gguf"):
            if path.name not in names:
                try:
                    path.unlink()
                except OSError:
                    continue
