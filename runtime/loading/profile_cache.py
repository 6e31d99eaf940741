"""Measurements of a model on this machine, cached between starts: a small JSON file per key in the user's cache folder.

Speeds are cached by model file: of plain decode as calibration measured it at the last load, of reading as the last
long prompt took it. A file that is lost, unreadable or unwritable only costs a measurement.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from platformdirs import user_cache_path
from pydantic import TypeAdapter

from runtime.core.outside import read_plain
from runtime.core.private_files import own_files
from runtime.models.content import state_of

LEFT = 3600.0  # seconds after which an unfinished file counts as abandoned
T = TypeVar("T")


def fingerprint(path: Path, *facts: object) -> str:
    """Return a key for a model's file in its present state and the other facts that the measurement depends on.

    Raises OSError.
    """
    return hashlib.sha256(repr((path.resolve(), state_of(path), facts)).encode()).hexdigest()[:32]


def finite(text: str) -> float:
    """Return the number if it can have been measured. Raises ValueError."""
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text} cannot have been measured")
    return number


def sweep(folder: Path) -> None:
    """Remove unfinished files of processes that ended while writing."""
    for path in own_files(folder, r"[\w-]+\.json\.\d+"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > LEFT:
                path.unlink()


class ProfileCache:
    """The measurements under one key."""

    def __init__(self, key: str, folder: Path | None = None) -> None:
        self.path = (folder or user_cache_path("slipstream") / "measured") / f"{key}.json"

    def read(self) -> dict[str, Any]:
        """Return the cached values; empty when there are none that can be read."""
        try:
            found = json.loads(read_plain(self.path), parse_constant=finite, parse_float=finite)
        except (OSError, ValueError, RecursionError, MemoryError):
            return {}
        return found if isinstance(found, dict) else {}

    def read_as(self, kind: type[T]) -> T | None:
        """Return the cached values as that dataclass; None when they do not match it."""
        try:
            return TypeAdapter(kind).validate_json(json.dumps(self.read()), strict=True)
        except ValueError:
            return None

    def write(self, values: dict[str, Any]) -> None:
        """Cache `values`, whole or not at all."""
        new = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            new.write_text(json.dumps(values), encoding="utf8")
            new.replace(self.path)
            sweep(self.path.parent)
        except OSError:
            with suppress(OSError):
                new.unlink()


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
