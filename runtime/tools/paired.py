"""Stores the results of searches for draft models: the model that pays, or that none does, and why.

Knows files and the cache of measurements; measures nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from runtime.backends import library
from runtime.loading.profile_cache import ProfileCache, fingerprint


def remembered(target: Path) -> Path | None:
    """Return the draft model that was stored for a target, or None if it or its source has changed since."""
    with suppress(OSError, ValueError):  # ValueError: not a valid file name
        kept = memo_of(target).read()
        if kept.get("draft") and all(is_same(kept, role) for role in ("draft", "source")):
            return Path(str(kept["draft"]))
    return None


def last_verdict(target: Path) -> str:
    """Return the verdict of the last search for a draft model, in a sentence; "" if there was none."""
    with suppress(OSError):
        return str(memo_of(target).read().get("verdict", ""))
    return ""


def note_failure(target: Path, why: str) -> None:
    """Store that the last search failed, and why in a sentence; an earlier draft model stays, and it may run again."""
    with suppress(OSError):
        memo = memo_of(target)
        memo.write(memo.read() | {"verdict": f"The search failed: {why}"})


def named(role: str, path: Path) -> dict[str, str]:
    """Return a file's entries in the stored result."""
    return {role: str(path.absolute()), f"{role}_key": fingerprint(path)}


def is_same(kept: dict[str, Any], role: str) -> bool:
    """Whether that file is unchanged. Raises OSError, ValueError."""
    return fingerprint(Path(str(kept.get(role)))) == kept.get(f"{role}_key")


def is_settled(target: Path, found: Iterable[Path]) -> bool:
    """Whether the same models were searched before, and the chosen draft model, if any, is still there."""
    with suppress(OSError):
        kept = memo_of(target).read()
        is_there = not kept.get("draft") or remembered(target) is not None
        return is_there and kept.get("found") == summary(found)
    return False


def summary(found: Iterable[Path]) -> str:
    """Return a digest of the models that are available now, which changes with each of them."""
    keys = list[str]()
    for path in found:
        with suppress(OSError):  # removed since it was found
            keys.append(fingerprint(path))
    return sha256(repr(sorted(keys)).encode()).hexdigest()[:32]


def memo_of(target: Path) -> ProfileCache:
    """Return the stored result for a target with this build and device."""
    return ProfileCache(fingerprint(target, "pairing", library.version(), library.has_gpu()))
