"""In which layout a target's weights are held: the fast one, or the one in which passes of any width round alike.

The second lets replies with a seed draft more; where there are such and it costs next to nothing, it is taken unasked.
Knows where a trial of both is kept; how it is made is `runtime.tools.layouts`.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from runtime.backends import library
from runtime.loading.profile_cache import ProfileCache, fingerprint

WORTH = 0.95  # of the fast layout's speed, from which the exact one is taken unasked
READING = 1 / 3  # of a usual turn's time, that goes into its prompt


@dataclass(frozen=True, slots=True)
class LayoutTrial:
    """How the two compared: rows up to which each is exact, of `tried`, and the exact one's share of the other's speed
    in plain decode and in reading a prompt.
    """

    fast_width: int
    exact_width: int
    tried: int
    plain: float
    prefill: float

    @property
    def prefers_exact(self) -> bool:
        """Does the exact layout give something, and cost next to nothing?"""
        longer = (1 - READING) / self.plain + READING / self.prefill  # a usual turn, against one in the fast layout
        return self.exact_width > self.fast_width and 1 / longer >= WORTH

    @property
    def promise(self) -> str:
        """What `--exact` would give, to follow a sentence."""
        if self.exact_width <= self.fast_width:
            return "`--exact` would change nothing: its kernels round no better here"
        return (
            f"with `--exact` it could draft {self.exact_width - 1} tokens at a time, at {self.plain:.2f} times the "
            f"speed of plain decode, and read prompts at {self.prefill:.2f} times"
        )


def remembered(target: Path) -> LayoutTrial | None:
    """The trial that was made of that file with this library, if it can be read."""
    try:
        trial = _memo(target).read_as(LayoutTrial)
    except OSError:  # of the target
        return None
    return trial if trial and trial.plain > 0 and trial.prefill > 0 else None


def remember(target: Path, trial: LayoutTrial) -> None:
    """Keeps it for the next start."""
    _memo(target).write(asdict(trial))


def note_seed(target: Path) -> None:
    """Keep that replies of this target have seeds: others gain nothing by the exact layout. Nothing is kept of a file
    that is gone meanwhile.
    """
    with suppress(OSError):
        _seeds(target).write({"seen": True})


def has_seeds(target: Path) -> bool:
    """Whether a reply of this target had a seed."""
    with suppress(OSError):  # of the target
        return bool(_seeds(target).read())
    return False


def prefers_exact(target: Path) -> bool:
    """Whether the exact layout is to be taken unasked."""
    trial = None if library.has_gpu() else remembered(target)
    return trial is not None and trial.prefers_exact and has_seeds(target)


def _seeds(target: Path) -> ProfileCache:
    return ProfileCache(fingerprint(target, "seeds"))


def _memo(target: Path) -> ProfileCache:
    return ProfileCache(fingerprint(target, "layout", library.version()))
