"""Plans which parts of a pair fit into free memory.

The draft model is given up first, then what a context keeps for rewinding, then context length. Knows headers and
arithmetic; loads no model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from runtime.core.errors import ModelError, NoMemoryError
from runtime.core.pressure import MIB, Level, Reading, Thresholds, is_sane
from runtime.loading.footprint import (
    ALL_LAYERS,
    DRAFT_BATCH,
    DRAFT_WINDOW,
    ContextSpec,
    estimate,
    head_bytes,
)
from runtime.models.cache_layout import STEP, cache_types
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.models.heads import drafter_of

FLOOR = 1024  # tokens of context that are not given up
DEFAULT_CONTEXT = 4096  # tokens of context wherever they fit, if no number was requested
# Share of the free memory for context beyond those: it is allocated whether or not a text becomes that long
FREE_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """The parts of a pair that are loaded, and the reason in a sentence."""

    n_ctx: int
    with_draft: bool
    n_bytes: int  # that it needs
    text: str
    is_less: bool = False  # than was requested
    is_frugal: bool = False  # the context keeps little for rewinding
    n_gpu_layers: int = ALL_LAYERS


@dataclass(frozen=True, slots=True)
class PairSpec:
    """The requested sizes of a pair, if there is memory for them; the context is not made shorter than `floor`."""

    target: ModelFacts
    draft: ModelFacts | None  # the target itself where layers of its own file draft
    context: ContextSpec
    floor: int = FLOOR
    window: int = DRAFT_WINDOW
    on_device: bool = False
    is_open: bool = False  # no number of tokens was requested
    n_adapted: int = 0  # bytes of LoRA adapters

    @property
    def has_head(self) -> bool:
        """Whether the draft is a head on the target, or layers of its own that only draft."""
        return self.draft is self.target or bool(drafter_of(self.draft))

    def needs(self, n_ctx: int, with_draft: bool) -> int:
        """Return the bytes of the target, and with `with_draft` also of the draft model, if there is one."""
        target = estimate(self.target, replace(self.context, n_ctx=n_ctx)).needed + self.n_adapted
        return target + (self.draft_needs(n_ctx) if with_draft else 0)

    def roomy(self, n_free: int) -> PairSpec:
        """Return the spec with the longest context, up to the present one, that takes at most its share of `n_free`."""
        n_ctx, with_draft = self.context.n_ctx, self.draft is not None
        least = min(DEFAULT_CONTEXT, n_ctx)
        usual = self.needs(least, with_draft)
        while n_ctx > least and self.needs(n_ctx, with_draft) - usual > FREE_SHARE * n_free:
            n_ctx = max(least, n_ctx // 2 // STEP * STEP)
        return replace(self, context=replace(self.context, n_ctx=n_ctx))

    def frugal(self) -> PairSpec:
        """Return the spec without snapshots of recurrent states, and with small caches for sliding-window layers."""
        return replace(self, context=replace(self.context, n_snapshots=0, n_seats=1, is_windowed=True))

    def draft_needs(self, n_ctx: int) -> int:
        """Return the bytes of the draft model for a target's context of `n_ctx` tokens."""
        if self.draft is None:
            return 0
        if self.has_head:
            return head_bytes(self.draft, self.target, replace(self.context, n_ctx=n_ctx))
        n_drafting = draft_context(n_ctx, self.window, self.context.n_rows - 1, self.draft.n_context)
        cache = cache_types(self.draft, self.on_device)
        context = ContextSpec(n_drafting, cache, 1, DRAFT_BATCH, has_words=False, n_seats=self.context.n_seats)
        return estimate(self.draft, context).needed


@dataclass(frozen=True, slots=True)
class Headroom:
    """Free bytes, and the bytes that a draft model and a long context must leave free."""

    free: int
    for_draft: int
    for_context: int


def fit(spec: PairSpec, headroom: Headroom, name: str) -> LoadPlan:
    """Return a plan that leaves enough memory free.

    Gives up the draft model first, then what a context keeps for rewinding, then context down to the floor. Raises
    NoMemoryError if even that needs more than is free. `name` is the target's.
    """
    wanted = spec.context.n_ctx
    if spec.draft is not None and spec.needs(wanted, True) <= headroom.free - headroom.for_draft:
        return plan(spec, wanted, True, headroom)
    budget = headroom.free - headroom.for_context
    if longest(spec, budget) == wanted:
        return plan(spec, wanted, False, headroom)
    frugal = spec.frugal()
    is_frugal = frugal.needs(wanted, False) < spec.needs(wanted, False)
    if n_ctx := longest(frugal, budget):
        return plan(spec, n_ctx, False, headroom, is_frugal)
    floor = min(spec.floor, wanted)
    least = frugal.needs(floor, False)
    if least > headroom.free:
        raise NoMemoryError(
            f"{name} needs {least // MIB:,} MiB of memory with a context of {floor} tokens, but "
            f"{headroom.free // MIB:,} MiB are free. Close other programs, or choose a smaller model or quantization."
        )
    return plan(spec, floor, False, headroom, is_frugal)


def longest(spec: PairSpec, budget: int) -> int:
    """Return the longest context that fits, in whole steps; 0 when not even the floor does."""
    wanted = spec.context.n_ctx
    floor = min(spec.floor, wanted)
    if spec.needs(wanted, False) <= budget:
        return wanted
    steps = range(wanted // STEP * STEP, floor - 1, -STEP)
    return next((n_ctx for n_ctx in [*steps, floor] if spec.needs(n_ctx, False) <= budget), 0)


def plan(spec: PairSpec, n_ctx: int, with_draft: bool, headroom: Headroom, is_frugal: bool = False) -> LoadPlan:
    """Return the plan, with a sentence about the parts that were given up."""
    lost = []
    chosen = spec.frugal() if is_frugal else spec
    if spec.draft is not None and not with_draft:
        lost.append("the head" if spec.has_head else "the draft model")
    if is_frugal:
        lost.append("the checkpoints for going back in a text")
    if n_ctx < spec.context.n_ctx:
        lost.append(f"context beyond {n_ctx} of {spec.context.n_ctx} tokens")
    needs, all_of_it = chosen.needs(n_ctx, with_draft), spec.needs(spec.context.n_ctx, spec.draft is not None)
    what = f"everything fits: it needs {needs // MIB:,} MiB"
    if lost:
        what = f"left out {', '.join(lost)}: all of it needs {all_of_it // MIB:,} MiB"
    free, reserve = headroom.free // MIB, headroom.for_draft // MIB
    text = f"{what} of memory, where {free:,} MiB are free and {reserve:,} MiB should stay free"
    return LoadPlan(n_ctx, with_draft, needs, text, bool(lost), is_frugal)


def headroom_of(reading: Reading, thresholds: Thresholds) -> Headroom | None:
    """Return the headroom of the machine's memory, where it is scarcest; None where it is unknown.

    A draft model must not make it TIGHT, a context not CRITICAL.
    """
    hosts = [pool for pool in reading.pools if is_sane(pool) and not pool.is_device]
    if not hosts:
        return None
    pool = min(hosts, key=lambda pool: pool.free - thresholds.wanted(pool, Level.TIGHT))
    reserves = (int(thresholds.recovery * thresholds.wanted(pool, level)) for level in (Level.TIGHT, Level.CRITICAL))
    return Headroom(pool.free, *reserves)


def draft_context(n_ctx: int, window: int, max_k: int, n_trained: int) -> int:
    """Return the tokens of a draft model's context: those it reads, and those it drafts.

    It reads no more than it was trained on (0: unknown).
    """
    return min(n_ctx, window, n_trained or n_ctx) + max_k


def spec_of(
    target: Path,
    draft: Path | None,
    context: ContextSpec,
    floor: int,
    window: int = DRAFT_WINDOW,
    on_device: bool = False,
) -> PairSpec | None:
    """Return the spec by the headers of a pair's files; None where they cannot be read: loading reports why."""
    try:
        facts = ModelFacts(read_model_header(target))
        draft_facts = None if draft is None else ModelFacts(read_model_header(draft))
    except (ModelError, OSError):
        return None
    n_ctx = min(context.n_ctx, facts.n_context) if facts.n_context else context.n_ctx
    context = replace(context, n_ctx=n_ctx, cache=cache_types(facts, on_device))
    return PairSpec(facts, draft_facts, context, floor, window, on_device)
