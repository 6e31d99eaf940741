"""Speed by model file: of plain decode as calibration measured it at the last load, of reading as the last long prompt
took it.

Cached in the user's cache folder. Knows files and seconds; reads no header.
"""

from __future__ import annotations

from pathlib import Path

from runtime.loading.profile_cache import ProfileCache, fingerprint

MAX_FILES = 100  # files, of which the oldest are dropped


def memo() -> ProfileCache:
    """Return the cache of the seconds of a plain step."""
    return ProfileCache("plain-steps")


def reading_memo() -> ProfileCache:
    """Return the cache of the seconds in which a token of a prompt is read."""
    return ProfileCache("prompt-tokens")


def record(path: Path, seconds: float, cache: ProfileCache | None = None) -> None:
    """Record the seconds of a plain step of that model, or what another cache has. Raises OSError."""
    kept = cache or memo()
    known, key = kept.read(), fingerprint(path)
    known.pop(key, None)
    kept.write(dict([*known.items(), (key, [str(path.absolute()), seconds])][-MAX_FILES:]))


def measured(cache: ProfileCache | None = None) -> dict[Path, float]:
    """Return the seconds of a plain step, or what another cache has, for each file that is still as it was measured."""
    found: dict[Path, float] = {}
    for key, entry in (cache or memo()).read().items():
        try:
            path, seconds = Path(str(entry[0])), float(entry[1])
            if seconds > 0 and fingerprint(path) == key:
                found[path] = seconds
        except (OSError, ValueError, TypeError, LookupError):
            continue
    return found
