"""The results of trying draft models: whether one pays, and what is stored for a target: that model, or that none pays,
and why.

Knows files and the cache of measurements; measures nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from statistics import median
from typing import Any

from runtime.backends import library
from runtime.engine.stats import Stats
from runtime.loading.profile_cache import ProfileCache, fingerprint
from runtime.speculative.control.explain import Pass

GAIN = 1.03  # minimum speed relative to no draft model
FEW = 20  # verified draft tokens below which there are no rates and no ratio


@dataclass(frozen=True, slots=True)
class Trial:
    """The results of a draft model: speed relative to none, and statistics of its own draft tokens."""

    gain: float
    acceptance: float  # accepted share of its draft tokens
    per_second: float
    n_tried: int = 0  # its draft tokens that followed accepted ones only
    right: float = 0.0  # accepted share of these
    guess_seconds: float = 0.0  # time per draft token
    per_pass: float = 1.0  # tokens per pass, with its draft tokens
    costs: str = ""  # of a draft token, its verification and a plain token, in a clause
    is_calm: bool = True  # whether other programs left the cores alone meanwhile

    @property
    def ratio(self) -> float:
        """The speed relative to none, as far as its accepted draft tokens explain it.

        It cannot exceed the tokens per pass; any speed above that is a lucky moment of the machine.
        """
        return min(self.gain, self.per_pass)

    @property
    def is_known(self) -> bool:
        """Whether enough of its draft tokens were verified for a ratio."""
        return self.n_tried >= FEW

    @property
    def pays(self) -> bool:
        """Whether the gain is large enough, known, and explained by accepted draft tokens."""
        return self.is_known and self.ratio >= GAIN


def trial_of(ratios: Sequence[float], rates: Sequence[float], own: Sequence[Pass], n_tokens: int) -> Trial:
    """Return the results of a trial.

    `ratios`: speeds of replies relative to no draft. `rates`: their tokens per second. `own`: passes with draft tokens
    of this drafter alone. `n_tokens`: tokens of all replies.
    """
    drafted = Stats(steps=[*own])
    n_accepted, n_tried = drafted.draft_n_accepted, sum(min(1 + each.n_accepted, each.n_drafted) for each in own)
    return Trial(
        median(ratios or [0.0]),
        drafted.acceptance_rate,
        median(rates or [0.0]),
        n_tried,
        n_accepted / max(1, n_tried),
        drafted.draft_seconds / max(1, drafted.draft_n),
        max(1, n_tokens) / max(1, n_tokens - n_accepted),
    )


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
