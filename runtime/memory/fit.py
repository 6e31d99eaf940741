"""What of a pair fits into the memory that is free: the draft model is given up first, then what a context keeps to go
back with, then context.

Knows headers and arithmetic; loads no model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from runtime.core.errors import ModelError, NoMemoryError
from runtime.memory.footprint import (
    ALL_LAYERS,
    DRAFT_BATCH,
    DRAFT_WINDOW,
    ContextSpec,
    estimate,
    head_bytes,
)
from runtime.memory.pressure import MIB, Level, Reading, Thresholds, is_sane
from runtime.models.cache_layout import STEP, cache_types
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.models.heads import drafter_of

FLOOR = 1024  # tokens of context that are not given up
USUAL = 4096  # tokens of context that are had wherever they fit, where no number was asked for
# Of the memory that is free, what a context may take beyond those: it is held whether or not a text becomes that long
ROOM = 0.25


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """What of a pair is loaded, and why, in a sentence."""

    n_ctx: int
    with_draft: bool
    n_bytes: int  # that it needs
    text: str
    is_less: bool = False  # than was wanted
    is_frugal: bool = False  # the context keeps little to go back with
    n_gpu_layers: int = ALL_LAYERS


@dataclass(frozen=True, slots=True)
class PairSpec:
    """What a pair is to have if there is memory for it; context is not made shorter than `floor`."""

    target: ModelFacts
    draft: ModelFacts | None  # the target itself where layers of its own file draft
    context: ContextSpec
    floor: int = FLOOR
    window: int = DRAFT_WINDOW
    on_device: bool = False
    is_open: bool = False  # no number of tokens was asked for

    @property
    def has_head(self) -> bool:
        """Is the draft a head on the target, or layers of its own that only draft?"""
        return self.draft is self.target or bool(drafter_of(self.draft))

    def needs(self, n_ctx: int, with_draft: bool) -> int:
        """Bytes of the target, and of the draft model where there is one and it comes along."""
        target = estimate(self.target, replace(self.context, n_ctx=n_ctx)).needed
        return target + (self.draft_needs(n_ctx) if with_draft else 0)

    def roomy(self, n_free: int) -> PairSpec:
        """The same with the longest context up to the present one that takes its share of `n_free` bytes at most."""
        n_ctx, with_draft = self.context.n_ctx, self.draft is not None
        least = min(USUAL, n_ctx)
        usual = self.needs(least, with_draft)
        while n_ctx > least and self.needs(n_ctx, with_draft) - usual > ROOM * n_free:
            n_ctx = max(least, n_ctx // 2 // STEP * STEP)
        return replace(self, context=replace(self.context, n_ctx=n_ctx))

    def frugal(self) -> PairSpec:
        """The same without snapshots of recurrent states, and with windows for the layers that look no further."""
        return replace(self, context=replace(self.context, n_snapshots=0, n_seats=1, is_windowed=True))

    def draft_needs(self, n_ctx: int) -> int:
        """Bytes that the draft model needs beside a target's context of `n_ctx` tokens."""
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
    """Bytes that are free, and how many of them a draft model, and a long context, must leave."""

    free: int
    for_draft: int
    for_context: int


def fit(spec: PairSpec, headroom: Headroom, name: str) -> LoadPlan:
    """Gives up the draft model first, then what a context keeps to go back with, then context down to the floor, until
    enough stays free.

    What needs more than is free is refused: raises NoMemoryError. `name` is the target's.
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
    """The longest context that fits, in whole steps; 0 when not even the floor does."""
    wanted = spec.context.n_ctx
    floor = min(spec.floor, wanted)
    if spec.needs(wanted, False) <= budget:
        return wanted
    steps = range(wanted // STEP * STEP, floor - 1, -STEP)
    return next((n_ctx for n_ctx in [*steps, floor] if spec.needs(n_ctx, False) <= budget), 0)


def plan(spec: PairSpec, n_ctx: int, with_draft: bool, headroom: Headroom, is_frugal: bool = False) -> LoadPlan:
    """The plan with the sentence about what was given up."""
    lost = []
    chosen = spec.frugal() if is_frugal else spec
    if spec.draft is not None and not with_draft:
        lost.append("the head" if spec.has_head else "the draft model")
    if is_frugal:
        lost.append("what is kept to go back in a text with")
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
    """The headroom of the machine's memory, where it is scarcest; None where it is not known.

    A draft model must not make it TIGHT, a context not CRITICAL.
    """
    hosts = [pool for pool in reading.pools if is_sane(pool) and not pool.is_device]
    if not hosts:
        return None
    pool = min(hosts, key=lambda pool: pool.free - thresholds.wanted(pool, Level.TIGHT))
    reserves = (int(thresholds.recovery * thresholds.wanted(pool, level)) for level in (Level.TIGHT, Level.CRITICAL))
    return Headroom(pool.free, *reserves)


def draft_context(n_ctx: int, window: int, max_k: int, n_trained: int) -> int:
    """Tokens of a draft model's context: those it looks at, and those it drafts.

    It looks at no more than it was trained on (0: not known).
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
    """The spec by the headers of a pair's files; None where they cannot be read: the library says more at loading."""
    try:
        facts = ModelFacts(read_model_header(target))
        draft_facts = None if draft is None else ModelFacts(read_model_header(draft))
    except (ModelError, OSError):
        return None
    n_ctx = min(context.n_ctx, facts.n_context) if facts.n_context else context.n_ctx
    context = replace(context, n_ctx=n_ctx, cache=cache_types(facts, on_device))
    return PairSpec(facts, draft_facts, context, floor, window, on_device)
