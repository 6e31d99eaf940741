"""What a model would be like here: does it fit into memory, and how fast can it be at most?

Reads headers; loads no model.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from app.models.library import Model
from runtime.core.errors import SlipstreamError
from runtime.memory.footprint import ContextSpec, estimate
from runtime.memory.system import MemoryReader
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header

CONTEXT = 4096  # tokens that a model is to have room for
MARGIN = 1.1  # times the bytes of its files, a model takes that is not here to be looked at
FITS, FITS_ALONE, TOO_LARGE = "fits", "fits without its draft model", "too large"


@dataclass(frozen=True, slots=True)
class Prospect:
    """What can be said of a model before it is loaded."""

    needed: int = 0  # bytes of memory; 0 = not known
    without_draft: int = 0
    read: int = 0  # bytes that a token reads; 0 = not known
    refusal: str = ""  # why it cannot be loaded at all
    kind: str = ""  # what it is called and how large it is

    def fit(self, free: int) -> str:
        """Does it fit into so many bytes? "" where that is not known."""
        if not self.needed:
            return ""
        if self.needed <= free:
            return FITS
        return FITS_ALONE if self.without_draft < self.needed and self.without_draft <= free else TOO_LARGE

    def per_second(self, bandwidth: float) -> float:
        """Tokens per second of plain decode at most, where memory moves so many bytes per second; 0.0 = not known."""
        return bandwidth / self.read if self.read else 0.0


def prospect(model: Model) -> Prospect:
    """By the headers of its files; by their size alone where they are not here."""
    if not model.is_here:
        needed = int(model.size * MARGIN)
        return Prospect(needed, needed, int(model.size * model.pair.share_read))
    try:
        target = demands(model.pair.target)
        drafting = demands(model.pair.draft).needed if model.pair.draft else 0
    except (SlipstreamError, OSError) as error:
        return Prospect(refusal=str(error))
    return Prospect(target.needed + drafting, target.needed, target.read, kind=target.kind)


@dataclass(frozen=True, slots=True)
class Demands:
    """What one file asks of a machine."""

    needed: int
    read: int
    kind: str


def demands(path: Path) -> Demands:
    """What the header of a file says. Raises ModelError and OSError."""
    return demands_at(path, path.stat().st_mtime_ns)


@cache
def demands_at(path: Path, changed: int) -> Demands:
    """The same for a file that was changed then."""
    facts = ModelFacts(read_model_header(path))
    return Demands(memory_of(facts), facts.n_bytes_per_token, facts.name)


def memory_of(facts: ModelFacts) -> int:
    """Bytes that a model needs with a usual context."""
    return estimate(facts, ContextSpec(min(CONTEXT, facts.n_context or CONTEXT))).needed


def free_memory() -> int:
    """Bytes that could be had now, of the machine or of what this process may have of it."""
    return min((pool.free for pool in MemoryReader()().pools), default=0)


@cache
def bandwidth() -> float:
    """Bytes per second that memory moves here, measured once."""
    from runtime.tools import machine  # slow to import

    return machine.memory_bandwidth()
