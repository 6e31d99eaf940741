"""The process of a draft-model search: `slipstream models pair` in the background, at most one per user."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
from platformdirs import user_cache_path

from runtime.core.packages import own_environment
from runtime.loading.profile_cache import ProfileCache

ENDING = 1.0  # seconds to wait for a process that was killed


def memo() -> ProfileCache:
    """Return the file that records the process for other programs."""
    return ProfileCache("search")


def start(target: Path) -> subprocess.Popen[bytes]:
    """Start a search. Its output goes to `pairing.log` in the cache folder. Ctrl+C does not end it."""
    log = user_cache_path("slipstream") / "pairing.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    flags = getattr(subprocess, "CREATE_NO_WINDOW", 0) | getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "app.cli", "models", "pair", str(target.absolute())],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, creationflags=flags,
            env=own_environment(),
        )  # fmt: skip
    with suppress(psutil.Error):
        psutil.Process(process.pid).nice(getattr(psutil, "IDLE_PRIORITY_CLASS", 19))  # Windows has classes
    return process


def note(process: subprocess.Popen[bytes], target: Path) -> None:
    """Record the process of a search for that target. Raises psutil.Error if it has ended."""
    began = psutil.Process(process.pid).create_time()
    memo().write({"pid": process.pid, "began": began, "target": str(target.absolute())})


def running() -> psutil.Process | None:
    """Return the process of the running search, whichever program started it."""
    kept = memo().read()
    with suppress(psutil.Error, TypeError, ValueError, OverflowError):  # for an invalid process id
        process = psutil.Process(kept.get("pid", 0))
        if process.create_time() == kept.get("began") and process.status() != psutil.STATUS_ZOMBIE:
            return process
    return None


def is_searched(target: Path) -> bool:
    """Return whether a search for that target's draft model is running."""
    return memo().read().get("target") == str(target.absolute()) and running() is not None


def end_running() -> None:
    """Kill the running search. Its low priority does not keep it off a reply's cores: it has its own session."""
    if process := running():
        with suppress(psutil.Error):
            process.kill()
            process.wait(ENDING)
