"""A copy of the present tree, in which faults are planted and tests run. Knows git and pytest; judges nothing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?::\w+)", re.MULTILINE)


class Ran(NamedTuple):
    """What pytest said."""

    status: int  # of its exit: 0 passed, 1 failed; others say that tests did not run
    failed: tuple[str, ...]  # tests, each once
    output: str


class Tree:
    """A folder with all that git knows or would add."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def planted(self, change: str) -> Iterator[bool]:
        """The change is made until the block ends; False where it does not apply."""
        if not self._applies(change):
            yield False
            return
        try:
            yield True
        finally:
            self._applies(change, "--reverse")

    def _applies(self, change: str, *options: str) -> bool:
        """Apply the change, if that can be done; a repository around the copy has no say."""
        env = os.environ | {"GIT_CEILING_DIRECTORIES": str(self.folder.parent)}
        command = ["git", "apply", *options]
        return not subprocess.run(
            command, input=change.encode(), cwd=self.folder, env=env, check=False, stderr=subprocess.DEVNULL
        ).returncode

    def run(self, tests: Sequence[str], *options: str, seconds: float | None = None, is_whole: bool = False) -> Ran:
        """Return what pytest says of these tests here, with the options of `make test`.

        `is_whole`: nothing is planted, so what is compiled may stay. Raises TimeoutExpired after so many seconds.
        """
        command = [sys.executable, "-m", "pytest", "--tb=no", "-rfE", "-p", "no:cacheprovider", *options, *tests]
        env = os.environ | {"PYTHONPATH": str(self.folder), "PYTHONDONTWRITEBYTECODE": "" if is_whole else "1"}
        found = subprocess.run(
            command, cwd=self.folder, env=env, timeout=seconds, check=False, text=True, encoding="utf8",
            errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        return Ran(found.returncode, tuple(dict.fromkeys(FAILED.findall(found.stdout))), found.stdout)


@contextmanager
def copied(source: Path) -> Iterator[Tree]:
    """A copy of the tree in `source`, with what is not committed yet, until the block ends."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=source, check=True, stdout=subprocess.PIPE).stdout.decode().split("\0")
    with tempfile.TemporaryDirectory(prefix="planted-", ignore_cleanup_errors=True) as folder:
        place = Path(folder).resolve()
        for name in filter(lambda name: (source / name).is_file(), names):
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source / name, place / name)
        yield Tree(place)
