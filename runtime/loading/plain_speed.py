"""Speed of plain decode by model file, as calibration measured it at the last load.

Cached in the user's cache folder. Knows files and seconds; reads no header.
"""

from __future__ import annotations

from pathlib import Path

from runtime.loading.profile_cache import ProfileCache, fingerprint

MAX_FILES = 100  # files, of which the oldest are dropped


def memo() -> ProfileCache:
    """Return the cache of all speeds."""
    return ProfileCache("plain-steps")


def record(path: Path, seconds: float) -> None:
    """Record the seconds of a plain step of that model."""
    known = memo().read()
    key = fingerprint(path)
    known.pop(key, None)
    memo().write(dict([*known.items(), (key, [str(path.absolute()), seconds])][-MAX_FILES:]))


def measured() -> dict[Path, float]:
    """Return the seconds of a plain step for each file that is still as it was measured."""
    found: dict[Path, float] = {}
    for key, entry in memo().read().items():
        try:
            path, seconds = Path(str(entry[0])), float(entry[1])
            if seconds > 0 and fingerprint(path) == key:
                found[path] = seconds
        except (OSError, ValueError, TypeError, LookupError):
            continue
    return found
