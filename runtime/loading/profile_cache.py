"""What was measured of a model on this machine, kept between starts: a small JSON file per key under the user's cache
folder.

A memo: lost, unreadable or unwritable, it costs a measurement and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path


def fingerprint(path: Path, *facts: object) -> str:
    """A key for a file as it is now, and whatever else the measurement depends on."""
    status = path.stat()
    return hashlib.sha256(repr((path.resolve(), status.st_size, status.st_mtime_ns, facts)).encode()).hexdigest()[:32]


class ProfileCache:
    """What was measured under one key."""

    def __init__(self, key: str, folder: Path | None = None) -> None:
        self.path = (folder or user_cache_path("slipstream") / "measured") / f"{key}.json"

    def read(self) -> dict[str, Any]:
        """What was kept; empty when there is nothing to be read."""
        try:
            found = json.loads(self.path.read_text(encoding="utf8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def write(self, values: dict[str, Any]) -> None:
        """Keeps `values`, whole or not at all."""
        new = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            new.write_text(json.dumps(values), encoding="utf8")
            new.replace(self.path)
        except OSError:
            with suppress(OSError):
                new.unlink()
