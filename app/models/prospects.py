"""Estimates whether a model fits into memory here, and how fast plain decode is.

Reads headers; loads no model.
"""

from __future__ import annotations

import statistics
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from app.models.library import Model, file_size
from runtime.core.errors import SlipstreamError
from runtime.core.memory import MemoryReader
from runtime.loading.fit import FLOOR, Headroom, fit, spec_of
from runtime.loading.footprint import ContextSpec, estimate
from runtime.loading.profile_cache import ProfileCache, measured, reading_memo
from runtime.models.content import Status, status_of
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header

if TYPE_CHECKING:
    from runtime.engine import Options
    from runtime.models.registry import Pair

CONTEXT = 4096  # tokens of context that must fit
MARGIN = 1.1  # memory of a model that is not here, relative to the size of its files
FITS, FITS_ALONE, TOO_LARGE = "fits", "fits without its draft model", "too large"


@dataclass(frozen=True, slots=True)
class Prospect:
    """Facts about a model that are known before it is loaded."""

    needed: int = 0  # bytes of memory; 0 = not known
    without_draft: int = 0
    read: int = 0  # bytes read for each token; 0 = not known
    n_layers: int = 28  # where the file is not here, those that models of 0.1 to 8 billion parameters have
    step_seconds: float = 0.0  # of plain decode, measured here; 0.0 = not yet
    refusal: str = ""  # why it cannot be loaded
    kind: str = ""  # its name and size

    def fit(self, free: int) -> str:
        """Return whether the model fits into `free` bytes, as one of the constants. "" if that is not known."""
        if not self.needed:
            return ""
        if self.needed <= free:
            return FITS
        return FITS_ALONE if self.without_draft < self.needed and self.without_draft <= free else TOO_LARGE

    def per_second(self, machine: Machine) -> float:
        """Return the tokens per second of plain decode, measured or estimated for a machine. 0.0 = not known."""
        seconds = self.step_seconds or machine.step_seconds(self.read, self.n_layers)
        return 1 / seconds if seconds else 0.0


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine's part in the speed of plain decode."""

    bandwidth: float = 0.0  # bytes per second of memory; 0.0 = not known
    layer_seconds: float = 0.0  # of a layer, besides reading its weights
    cached: int = 2**26  # bytes of weights; less may fit into the caches, so nothing is estimated

    def step_seconds(self, n_bytes: int, n_layers: int) -> float:
        """Return the estimated seconds of a step that reads `n_bytes`. 0.0 if it cannot be estimated."""
        if n_bytes < max(1, self.cached) or not self.bandwidth:
            return 0.0
        return n_bytes / self.bandwidth + n_layers * self.layer_seconds


def prospect(model: Model) -> Prospect:
    """Return the prospect of a model from the headers of its files, or from their size alone if they are not here.
    Nothing is known of one that another server has.
    """
    if model.pair.upstream:
        return Prospect()
    if not model.is_here:
        needed = int(model.size * MARGIN)
        return Prospect(needed, needed, int(model.size * model.pair.share_read))
    try:
        target = demands(model.pair.target)
        drafting = demands(model.pair.draft).needed if model.pair.draft else 0
    except (SlipstreamError, OSError) as error:
        return Prospect(refusal=str(error))
    seconds = measured().get(model.pair.target.absolute(), 0.0)
    return replace(target, needed=target.needed + drafting, step_seconds=seconds)


def demands(path: Path) -> Prospect:
    """Return what one file demands, from its header. Raises ModelError and OSError."""
    return demands_at(path, status_of(path))


@cache
def demands_at(path: Path, status: Status) -> Prospect:
    """Return the demands of a file with this status, which is part of the cache's key."""
    facts = ModelFacts(read_model_header(path))
    needed = memory_of(facts)
    return Prospect(needed, needed, facts.n_bytes_per_token, facts.n_layers, kind=facts.name)


def memory_of(facts: ModelFacts) -> int:
    """Return the bytes that a model needs with a usual context."""
    return estimate(facts, ContextSpec(min(CONTEXT, facts.n_context or CONTEXT))).needed


def free_memory() -> int:
    """Return the bytes of memory that are free, in this machine or within this process's limit."""
    return min((pool.free for pool in MemoryReader()().pools), default=0)


def reading_seconds(path: Path) -> float:
    """Return the seconds in which a model reads a token of a prompt: as measured here, else in proportion to its size
    as other models took. 0.0 = not known.
    """
    known = measured(reading_memo())
    if path.absolute() in known:
        return known[path.absolute()]
    by_byte = [seconds / file_size(each) for each, seconds in known.items()]
    return statistics.median(by_byte) * file_size(path) if by_byte and path.is_file() else 0.0


def check_fits(pair: Pair, options: Options, n_held: int) -> None:
    """Raise NoMemoryError for a pair whose target alone needs more than the free memory and the `n_held` bytes of the
    loaded model, even with a short context. Nothing is known of memory elsewhere: of workers and other servers.
    """
    free, floor = free_memory(), options.n_ctx or FLOOR
    context = ContextSpec(floor, n_rows=options.max_k + 1, repacks=False)  # the least that it needs
    spec = None if pair.upstream or pair.rpc or options.rpc else spec_of(pair.target, None, context, floor)
    if free and spec is not None:
        fit(spec, Headroom(free + n_held, 0, 0), pair.target.name)


def all_memory() -> int:
    """Return the bytes of this machine's memory, or this process's limit."""
    return min((pool.total for pool in MemoryReader()().pools), default=0)


@cache
def bandwidth() -> float:
    """Return the memory bandwidth in bytes per second, measured once, and remember it for later starts."""
    from runtime.engine import machine  # slow to import

    # Beside busy programs too little is measured, so an earlier result fades slowly
    best = max(machine.memory_bandwidth(), 0.9 * remembered_bandwidth())
    bandwidth_memo().write({"bytes_per_second": best})
    return best


def bandwidth_memo() -> ProfileCache:
    """Return the cache of the measured bandwidth."""
    return ProfileCache("memory-bandwidth")


def remembered_bandwidth() -> float:
    """Return the bandwidth that an earlier start measured. 0.0 if none did."""
    found = bandwidth_memo().read().get("bytes_per_second")
    return found if isinstance(found, float) and found > 0 else 0.0


def this_machine() -> Machine:
    """Measure the bandwidth, and derive the time of a layer from the models that were loaded here before."""
    return Machine(bandwidth(), layer_seconds(bandwidth()))


def remembered_machine() -> Machine:
    """Return the machine as an earlier start measured it; nothing is known of it if none did."""
    found = remembered_bandwidth()
    return Machine(found, layer_seconds(found)) if found else Machine()


def layer_seconds(bandwidth: float) -> float:
    """Return the median seconds of a layer besides reading its weights, over the measured models. 0.0 if there are
    none.
    """
    found = []
    for path, seconds in measured().items():
        with suppress(SlipstreamError, OSError):
            model = demands(path)
            found.append(max(0.0, seconds - model.read / bandwidth) / max(1, model.n_layers))
    return statistics.median(found) if found else 0.0
