"""The layout of a target's weights: the fast one, or the exact one, in which passes of any width round alike.

The exact one lets replies with a seed draft more. It is chosen by default where there are such replies and it costs
almost nothing. Knows where a trial of both is cached; `runtime.tools.layouts` makes it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from runtime.backends import library
from runtime.loading.profile_cache import ProfileCache, fingerprint

WORTH = 0.95  # share of the fast layout's speed from which the exact one is chosen by default
READING = 1 / 3  # share of a usual turn's time for reading its prompt


@dataclass(frozen=True, slots=True)
class LayoutTrial:
    """Comparison of the two layouts: rows up to which each is exact, of `tried`, and the exact one's relative speed.

    `plain` and `prefill` are its share of the fast one's speed in plain decode and in reading a prompt.
    """

    fast_width: int
    exact_width: int
    tried: int
    plain: float
    prefill: float
    is_calm: bool = True  # whether other programs left the cores alone meanwhile

    @property
    def prefers_exact(self) -> bool:
        """Whether the exact layout has an advantage and costs almost nothing."""
        longer = (1 - READING) / self.plain + READING / self.prefill  # a usual turn's time, as a ratio to the fast one
        return self.exact_width > self.fast_width and 1 / longer >= WORTH

    @property
    def promise(self) -> str:
        """Effect of `--exact`, as a clause to follow a sentence."""
        if self.exact_width <= self.fast_width:
            return "`--exact` would change nothing: its kernels are no more exact here"
        return (
            f"with `--exact` it could draft {self.exact_width - 1} tokens at a time, at {self.plain:.2f} times the "
            f"speed of plain decode, and read prompts at {self.prefill:.2f} times"
        )


def remembered(target: Path) -> LayoutTrial | None:
    """Return the cached trial of that file with this library, if it can be read."""
    try:
        trial = _memo(target).read_as(LayoutTrial)
    except OSError:  # the target is gone
        return None
    return trial if trial and trial.plain > 0 and trial.prefill > 0 else None


def remember(target: Path, trial: LayoutTrial) -> None:
    """Cache a trial for the next start."""
    _memo(target).write(asdict(trial))


def note_seed(target: Path) -> None:
    """Record that replies of this target have seeds: others gain nothing from the exact layout.

    Does nothing for a file that is gone.
    """
    with suppress(OSError):
        _seeds(target).write({"seen": True})


def has_seeds(target: Path) -> bool:
    """Return whether a reply of this target had a seed."""
    with suppress(OSError):  # the target is gone
        return bool(_seeds(target).read())
    return False


def prefers_exact(target: Path) -> bool:
    """Return whether the exact layout is chosen by default."""
    trial = None if library.has_gpu() else remembered(target)
    return trial is not None and trial.prefers_exact and has_seeds(target)


def _seeds(target: Path) -> ProfileCache:
    return ProfileCache(fingerprint(target, "seeds"))


def _memo(target: Path) -> ProfileCache:
    return ProfileCache(fingerprint(target, "layout", library.version()))
