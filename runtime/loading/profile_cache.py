"""What was measured of a model on this machine, kept between starts: a small JSON file per key under the user's cache
folder.

A memo: lost, unreadable or unwritable, it costs a measurement and nothing else.
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

from runtime.models.plain_file import read_plain

LEFT = 3600.0  # seconds after which nobody writes a file any more
T = TypeVar("T")


def fingerprint(path: Path, *facts: object) -> str:
    """A key for a file as it is now, and whatever else the measurement depends on."""
    status = path.stat()
    return hashlib.sha256(repr((path.resolve(), status.st_size, status.st_mtime_ns, facts)).encode()).hexdigest()[:32]


def finite(text: str) -> float:
    """The number, if it can have been measured. Raises ValueError."""
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text} cannot have been measured")
    return number


def sweep(folder: Path) -> None:
    """Removes what was left by processes that were ended while they wrote."""
    for path in folder.glob("*.json.*"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > LEFT:
                path.unlink()


class ProfileCache:
    """What was measured under one key."""

    def __init__(self, key: str, folder: Path | None = None) -> None:
        self.path = (folder or user_cache_path("slipstream") / "measured") / f"{key}.json"

    def read(self) -> dict[str, Any]:
        """What was kept; empty when there is nothing to be read."""
        try:
            found = json.loads(read_plain(self.path), parse_constant=finite, parse_float=finite)
        except (OSError, ValueError, RecursionError, MemoryError):
            return {}
        return found if isinstance(found, dict) else {}

    def read_as(self, kind: type[T]) -> T | None:
        """What was kept as that dataclass; None when it is none."""
        try:
            return TypeAdapter(kind).validate_json(json.dumps(self.read()), strict=True)
        except ValueError:
            return None

    def write(self, values: dict[str, Any]) -> None:
        """Keeps `values`, whole or not at all."""
        new = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            new.write_text(json.dumps(values), encoding="utf8")
            new.replace(self.path)
            sweep(self.path.parent)
        except OSError:
            with suppress(OSError):
                new.unlink()
