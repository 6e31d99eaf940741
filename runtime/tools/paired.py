"""What searches for draft models found, kept for the next start: the model that pays, or that none does, and why.

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
    """The draft model that was kept for a target, if it still is what it was, and so is the file that it lacks words
    of.
    """
    with suppress(OSError, ValueError):  # ValueError: no name of a file
        kept = memo_of(target).read()
        if kept.get("draft") and all(is_same(kept, role) for role in ("draft", "source")):
            return Path(str(kept["draft"]))
    return None


def last_verdict(target: Path) -> str:
    """Return what the last search for a draft model found, in a sentence; "" where there was none."""
    with suppress(OSError):
        return str(memo_of(target).read().get("verdict", ""))
    return ""


def named(role: str, path: Path) -> dict[str, str]:
    """A file in what is remembered."""
    return {role: str(path.absolute()), f"{role}_key": fingerprint(path)}


def is_same(kept: dict[str, Any], role: str) -> bool:
    """Is that file still what it was? Raises OSError, ValueError."""
    return fingerprint(Path(str(kept.get(role)))) == kept.get(f"{role}_key")


def is_settled(target: Path, found: Iterable[Path]) -> bool:
    """Was a draft model, which is still there, or none chosen for the target when the same models were here?"""
    with suppress(OSError):
        kept = memo_of(target).read()
        is_there = not kept.get("draft") or remembered(target) is not None
        return is_there and kept.get("found") == summary(found)
    return False


def summary(found: Iterable[Path]) -> str:
    """Short for the models that are here now; another one, or one that changed, gives another."""
    keys = list[str]()
    for path in found:
        with suppress(OSError):  # gone since it was found
            keys.append(fingerprint(path))
    return sha256(repr(sorted(keys)).encode()).hexdigest()[:32]


def memo_of(target: Path) -> ProfileCache:
    """Return what is remembered of a target with this build and device."""
    return ProfileCache(fingerprint(target, "pairing", library.version(), library.has_gpu()))
