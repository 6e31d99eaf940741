"""What a decoder is made of: the target's passes and their permitted widths, from what its self-test found, and
factories for the drafters of an open pair, by name.

Knows the resources that drafters need, and none of them by name; the controller decides when they propose.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from runtime.backends.heads.early_exit import EarlyExitBackend
from runtime.backends.llama import LlamaBackend
from runtime.backends.reloadable import ReloadableBackend
from runtime.backends.shared import SharedBackend
from runtime.backends.translated import TranslatedSharedBackend
from runtime.core.backend import Backend, SharedPasses
from runtime.core.drafter import Drafter, Traits, traits_of
from runtime.drafters.lookahead import WindowShape
from runtime.drafters.model import ModelDrafter
from runtime.drafters.registry import Needs, Registered, registered
from runtime.drafters.renames import Spelling
from runtime.loading.calibration import Calibration
from runtime.loading.exactness import Exactness
from runtime.loading.pass_timing import pass_runner, timed
from runtime.loading.profile import replies_of
from runtime.speculative.control.reasons import Reason
from runtime.speculative.target import Sharing, TargetPasses

DRAFTS = Needs.DRAFT, Needs.HEAD
LOOKUP_SECONDS = 5e-6  # estimate for a token of a drafter without a model, before it is measured
Maker = Callable[[], Drafter]
Given = Callable[[], tuple[object, ...]]  # returns the arguments of a drafter's class
INEXACT = (
    "passes over several rows round differently from plain decode here, so greedy and seeded replies use plain decode"
)


@dataclass(frozen=True, slots=True)
class Drafters:
    """The resources of drafters: the target's file and context, the draft, and the window of lookahead.

    `drafts_by` is the name of the draft's drafter; a draft has at most `room` tokens.
    """

    path: Path
    backend: LlamaBackend
    draft: ReloadableBackend | None
    drafts_by: str
    shape: WindowShape | None
    room: int

    def makers(self, names: Collection[str]) -> dict[str, Maker]:
        """Return factories for the available drafters of `names`, cheapest first.

        The draft's drafter follows from its file, not from `names`.
        """
        given = self._given()
        return {
            each.name: partial(made, each, given[each.needs])
            for each in sorted(registered(), key=lambda each: each.cost)
            if each.needs in given and (each.name == self.drafts_by if each.needs in DRAFTS else each.name in names)
        }

    def _given(self) -> dict[Needs, Given]:
        """Return functions for the available arguments of drafters, some of which are opened only by the call."""
        backend, draft, shape, vocab = self.backend, self.draft, self.shape, self.backend.model.vocab
        given: dict[Needs, Given] = {
            Needs.NOTHING: tuple,
            Needs.SPELLING: lambda: (Spelling(vocab.pieces, partial(vocab.encode, special=False)),),
            Needs.REPLIES: lambda: (replies_of(self.path, vocab),),
        }
        if draft is not None:
            given[Needs.DRAFT] = lambda: (*self._with_state(draft), shared_passes(draft.backend))
            given[Needs.HEAD] = lambda: self._with_state(draft)
        if isinstance(backend, EarlyExitBackend):
            given[Needs.EARLY_EXIT] = lambda: (backend.early, backend.n_vocab)
        if shape is not None:
            given[Needs.WINDOW] = lambda: (shape,)
        return given

    def _with_state(self, draft: ReloadableBackend) -> tuple[Backend, int, int]:
        """Return the draft model or head, the size of the target's vocabulary, and the room for draft tokens."""
        return draft.backend, self.backend.n_vocab, self.room

    def traits(self, drafter: Drafter, draft_costs: Calibration | None) -> Traits:
        """Return what the controller knows of a drafter before it drafted."""
        return traits_of(drafter, self._token_seconds(drafter, draft_costs))

    def _token_seconds(self, drafter: Drafter, draft_costs: Calibration | None) -> float:
        """Return the estimated seconds of a draft token, before any was drafted."""
        if drafter.name == self.drafts_by and draft_costs:
            return draft_costs.pass_seconds[1]
        if isinstance(drafter, ModelDrafter):
            return timed(pass_runner(drafter.backend), 1, 5, float("inf"))
        return LOOKUP_SECONDS


def made(drafter: Registered, given: Given) -> Drafter:
    """Return a new drafter with these arguments."""
    return drafter.kind(*given())


def shared_passes(backend: Backend) -> SharedPasses | None:
    """Return the backend if conversations can share its passes, else None."""
    return backend if isinstance(backend, SharedBackend | TranslatedSharedBackend) else None


def target_passes(backend: LlamaBackend, found: Exactness, is_fast: bool, promise: str) -> TargetPasses:
    """Return the passes of a target, of which these are exact; `is_fast` allows all. `promise` is what the user may do
    about replies without drafts, as a clause.
    """

    def exact_rows(n_context: int) -> int:
        return found.rows_at(n_context, backend.n_ctx, backend.n_before)

    is_padded = found.padded and not is_fast  # otherwise the position does not matter
    width = sys.maxsize if is_fast else found.width
    passes = TargetPasses(backend, width, sharing(backend, found, is_fast), exact_rows if is_padded else None)
    passes.is_exact = found.is_exact
    passes.inexact = Reason("exactness", f"{INEXACT}; {promise}")
    return passes


def sharing(backend: LlamaBackend, found: Exactness, is_fast: bool) -> Sharing | None:
    """Return the rules for shared passes of several replies; None where replies have to take turns."""
    shared = shared_passes(backend)
    if shared is None:
        return None
    is_any = is_fast or (found.is_exact and found.together)
    return Sharing(shared, sys.maxsize if is_any else found.width if found.together else 1)
