"""A hard limit on a benchmark's memory: runs it again inside a cgroup, by systemd, which knows who may make one.

Says plainly where that is refused, and checks from inside that the limit holds. Knows systemd-run and the reader of
memory; no benchmark.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

from runtime.memory.pressure import MemoryPool
from runtime.memory.system import MemoryReader

INSIDE = "--inside-cgroup"  # that a run is already confined


def confine(n_bytes: int, module: str, arguments: Sequence[str]) -> None:
    """Replaces this process by `python -m module arguments` in a cgroup of so many bytes.

    Exits with a sentence where that is refused.
    """
    command = scope(n_bytes)
    if shutil.which(command[0]) is None:
        sys.exit(
            "There is no systemd-run here to make a cgroup with. Set memory.max by hand, and run without --cgroup "
            "inside that cgroup."
        )
    tried = subprocess.run([*command, "true"], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if tried.returncode:
        said = tried.stderr.strip().splitlines() or ["no reason given"]
        sys.exit(f"A cgroup of {n_bytes:,} bytes was refused ({said[-1]}). Nothing was run.")
    os.execvp(command[0], [*command, sys.executable, "-m", module, *arguments, INSIDE])


def scope(n_bytes: int) -> list[str]:
    """The command before a command; without swap, so that the limit is one."""
    whose = [] if os.geteuid() == 0 else ["--user"]
    return ["systemd-run", *whose, "--scope", "--quiet", "-p", f"MemoryMax={n_bytes}", "-p", "MemorySwapMax=0"]


def confined(n_bytes: int, source: MemoryReader) -> MemoryPool:
    """The cgroup of that limit which this process is in. Exits with a sentence where none is in force."""
    found = [place for place in source().pools if place.name == "this process's cgroup"]
    for place in found:
        if abs(place.total - n_bytes) < os.sysconf("SC_PAGE_SIZE"):
            return place
    limits = ", ".join(f"{place.total:,}" for place in found) or "none"
    sys.exit(f"The kernel does not hold this process to {n_bytes:,} bytes (limits found: {limits}). Nothing was run.")
