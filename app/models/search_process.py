"""The process of a search in the background: `python -m app.models.search_process TARGET [drafts]`.

With `drafts` it tries draft models; in any case it compares what remains to be compared of the target itself.

It ends with the program that began it, or when any program of this user begins to load or to reply. One search runs at
a time, in the background or as `slipstream models pair`; the lock is released however its holder ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from filelock import FileLock, Timeout
from platformdirs import user_cache_path

from runtime.core.children import Child, end_with_parent
from runtime.core.errors import SlipstreamError
from runtime.core.memory import HOSTS, MemoryReader
from runtime.core.pressure import Reading
from runtime.engine import machine
from runtime.loading.profile_cache import ProfileCache
from runtime.models.content import parts_of

DRAFTS = "drafts"  # argument with which draft models are tried
NOT_NOW = 75  # exit code of a search that has to begin again later
ROOM = 1.5  # bytes that must be free per byte of the target: for another copy, its cache and a draft model
ENDING = 1.0  # seconds to wait for a process that was killed
LOWEST = getattr(psutil, "IDLE_PRIORITY_CLASS", 19)  # Windows has classes


def memo() -> ProfileCache:
    """Return the file that records the process for other programs."""
    return ProfileCache("search")


def start(target: Path, tries_drafts: bool) -> Child:
    """Start a search. Its output goes to `pairing.log` in the cache folder. Ctrl+C does not reach it."""
    log = user_cache_path("slipstream") / "pairing.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    flags = getattr(subprocess, "CREATE_NO_WINDOW", 0) | getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)
    with log.open("wb") as output:
        process = Child(
            "app.models.search_process",
            target.absolute(),
            *([DRAFTS] if tries_drafts else []),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            creationflags=flags,
            process_group=None if sys.platform == "win32" else 0,
        )
    note(process.pid, target)
    return process


def note(pid: int, target: Path) -> None:
    """Record the process of a search for that target."""
    with suppress(psutil.Error):  # it has ended
        began = psutil.Process(pid).create_time()
        memo().write({"pid": pid, "began": began, "target": str(target.absolute())})


@contextmanager
def alone(on_wait: Callable[[], object] | None = None) -> Iterator[None]:
    """Hold the lock of searches; if another search has it, call `on_wait` and wait, or raise filelock.Timeout."""
    path = user_cache_path("slipstream") / "search.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        if on_wait is None:
            raise
        on_wait()
        lock.acquire()
    with lock:
        yield


def running() -> psutil.Process | None:
    """Return the process of the search in the background, whichever program started it."""
    kept = memo().read()
    with suppress(psutil.Error, TypeError, ValueError, OverflowError):  # for an invalid process id
        process = psutil.Process(kept.get("pid", 0))
        if process.create_time() == kept.get("began") and process.status() != psutil.STATUS_ZOMBIE:
            return process
    return None


def is_searched(target: Path) -> bool:
    """Return whether a search for that target is running."""
    return memo().read().get("target") == str(target.absolute()) and running() is not None


def end_running() -> None:
    """Kill the running search, whose low priority does not keep it off the memory that a reply reads."""
    if process := running():
        with suppress(psutil.Error):
            process.kill()
            process.wait(ENDING)


def main(target: Path, tries_drafts: bool) -> int:
    """Search at the lowest priority. Return the exit code: NOT_NOW if another search runs, memory is short, or other
    programs made the result worthless. Errors of the search are a part of its result.
    """
    end_with_parent()
    with suppress(psutil.Error):
        psutil.Process().nice(LOWEST)
    from app.models.pair import pair_up, settle  # slow to import, and not needed to start this process

    try:
        with alone():
            note(os.getpid(), target)  # again: of two that began at once, the other one has ended
            if not has_room(target, machine.devices(), MemoryReader()()):
                return NOT_NOW
            with suppress(SlipstreamError):
                return 0 if (pair_up(str(target), []) if tries_drafts else settle(target)) else NOT_NOW
    except Timeout:
        return NOT_NOW
    return 0


def has_room(target: Path, devices: Iterable[machine.Device], memory: Reading) -> bool:
    """Return whether there is room for the target once more: on every GPU, or without one in memory, as weights of most
    types are copied into another layout.
    """
    free = [each.free_bytes for each in devices if each.backend not in HOSTS] or [pool.free for pool in memory.pools]
    return min(free, default=sys.maxsize) > ROOM * sum(n_bytes for _, (_, n_bytes, *_) in parts_of(target))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), DRAFTS in sys.argv[2:]))
