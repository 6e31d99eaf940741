"""Commands in folders of their own, and all processes that they began and those in turn."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

MARK = "SLIPSTREAM_TEST_FAMILY"  # in the environment of a command, and so of all that it begins


class Family:
    """The commands of one test. `temporary` is their folder for temporary files."""

    def __init__(self, folder: Path) -> None:
        self._name, self.temporary = f"{os.getpid()}-{folder}", folder / "tmp"
        self.temporary.mkdir()
        places = {f"XDG_{kind}_HOME": str(folder / kind) for kind in ("CACHE", "DATA", "CONFIG")}
        places |= {"HF_HOME": str(folder / "hub"), "TMPDIR": str(self.temporary), MARK: self._name}
        self.environment = os.environ | places
        self.environment.pop("SLIPSTREAM_NO_SEARCH", None)

    def begin(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        """Begin a command without a terminal."""
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=self.environment
        )

    def _members(self) -> Iterator[psutil.Process]:
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if process.environ().get(MARK) == self._name and process.status() != psutil.STATUS_ZOMBIE:
                    yield process

    def alive(self) -> list[list[str]]:
        """The command lines of those that exist."""
        found = list[list[str]]()
        for process in self._members():
            with suppress(psutil.Error):
                found.append(process.cmdline())
        return found

    def runs(self, module: str, n: int = 1) -> bool:
        """Whether so many of them run that module."""
        return sum(module in line for line in self.alive()) >= n

    def end(self) -> None:
        """Kill what is left."""
        for process in self._members():
            with suppress(psutil.Error):
                process.kill()
