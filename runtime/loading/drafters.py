"""What makes the drafters of an open pair, each by its name.

Knows what drafters stand on, and none of them by name; when they are asked is the controller's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from runtime.backends.early_exit import EarlyExitBackend
from runtime.backends.llama import LlamaBackend
from runtime.backends.reloadable import ReloadableBackend
from runtime.backends.shared import SharedBackend
from runtime.core.backend import Backend, SharedPasses
from runtime.core.drafter import Drafter
from runtime.drafters.lookahead import WindowShape
from runtime.drafters.model import ModelDrafter
from runtime.drafters.registry import Needs, Registered, registered
from runtime.loading.calibration import Calibration
from runtime.loading.pass_timing import pass_runner, timed
from runtime.loading.profile import replies_of

DRAFTS = Needs.DRAFT, Needs.HEAD
LOOKUP_SECONDS = 5e-6  # a token of a drafter without a model, before any was measured
Maker = Callable[[], Drafter]
Given = Callable[[], tuple[object, ...]]  # what a drafter's class is called with


@dataclass(frozen=True, slots=True)
class Drafters:
    """What drafters stand on: the target's file and context, the draft and the drafter that it is for, the window of
    lookahead; at most `room` tokens are drafted at once.
    """

    path: Path
    backend: LlamaBackend
    draft: ReloadableBackend | None
    drafts_by: str
    shape: WindowShape | None
    room: int

    def makers(self, names: Collection[str]) -> dict[str, Maker]:
        """What makes each of those `names` that can be had, in order of cost; the draft's drafter goes by its file."""
        given = self._given()
        return {
            each.name: partial(made, each, given[each.needs])
            for each in sorted(registered(), key=lambda each: each.cost)
            if each.needs in given and (each.name == self.drafts_by if each.needs in DRAFTS else each.name in names)
        }

    def _given(self) -> dict[Needs, Given]:
        """What there is to give to drafters, of which some may be opened only when it is given."""
        backend, draft, shape = self.backend, self.draft, self.shape
        given: dict[Needs, Given] = {
            Needs.NOTHING: tuple,
            Needs.REPLIES: lambda: (replies_of(self.path, backend.model.vocab),),
        }
        if draft is not None:
            given[Needs.DRAFT] = lambda: (*self._beside(draft), shared_passes(draft.backend))
            given[Needs.HEAD] = lambda: self._beside(draft)
        if isinstance(backend, EarlyExitBackend):
            given[Needs.EARLY_EXIT] = lambda: (backend.early, backend.n_vocab)
        if shape is not None:
            given[Needs.WINDOW] = lambda: (shape,)
        return given

    def _beside(self, draft: ReloadableBackend) -> tuple[Backend, int, int]:
        """The draft model or head, how many words the target has, and the room for drafted tokens."""
        return draft.backend, self.backend.n_vocab, self.room

    def token_seconds(self, drafter: Drafter, draft_costs: Calibration | None) -> float:
        """Seconds of a draft token, before any was drafted."""
        if drafter.name == self.drafts_by and draft_costs:
            return draft_costs.pass_seconds[1]
        if isinstance(drafter, ModelDrafter):
            return timed(pass_runner(drafter.backend), 1, 5, float("inf"))
        return LOOKUP_SECONDS


def made(drafter: Registered, given: Given) -> Drafter:
    """That drafter, from what is given to it."""
    return drafter.kind(*given())


def shared_passes(backend: Backend) -> SharedPasses | None:
    """The backend, where conversations can share its passes."""
    return backend if isinstance(backend, SharedBackend) else None
