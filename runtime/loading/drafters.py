"""What makes the drafters of an open pair, each by its name.

Knows every drafter and what it stands on; when they are asked is the controller's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from runtime.backends.early_exit import EarlyExitBackend
from runtime.backends.head import HeadBackend
from runtime.backends.llama import LlamaBackend
from runtime.backends.reloadable import ReloadableBackend
from runtime.backends.shared import SharedBackend
from runtime.core.backend import Backend, SharedPasses
from runtime.core.drafter import Drafter
from runtime.drafters.dflash import DflashDrafter
from runtime.drafters.eagle import EagleDrafter
from runtime.drafters.grammar import GrammarDrafter
from runtime.drafters.head import HeadDrafter
from runtime.drafters.layerskip import LayerSkipDrafter
from runtime.drafters.lookahead import LookaheadDrafter, WindowShape
from runtime.drafters.model import ModelDrafter
from runtime.drafters.mtp import MtpDrafter
from runtime.drafters.ngram import NgramDrafter
from runtime.drafters.prediction import PredictionDrafter
from runtime.drafters.suffix import SuffixDrafter
from runtime.loading.calibration import Calibration
from runtime.loading.pass_timing import pass_runner, timed
from runtime.loading.profile import replies_of

HEAD_DRAFTERS: dict[str, type[HeadDrafter]] = {each.name: each for each in (EagleDrafter, MtpDrafter, DflashDrafter)}
LOOKUP_SECONDS = 5e-6  # a token of a drafter without a model, before any was measured
Maker = Callable[[], Drafter]


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
        """What makes each of those `names` that can be had, in order of cost."""
        backend, draft, shape = self.backend, self.draft, self.shape
        simple: dict[str, Maker] = {
            GrammarDrafter.name: GrammarDrafter,
            PredictionDrafter.name: PredictionDrafter,
            NgramDrafter.name: NgramDrafter,
            SuffixDrafter.name: lambda: SuffixDrafter(replies_of(self.path, backend.model.vocab)),
        }
        makers = {name: make for name, make in simple.items() if name in names}
        if draft is not None:
            makers[self.drafts_by] = partial(self._driving, draft)
        if isinstance(backend, EarlyExitBackend):
            makers[LayerSkipDrafter.name] = lambda: LayerSkipDrafter(backend.early, backend.n_vocab)
        if shape is not None:
            makers[LookaheadDrafter.name] = lambda: LookaheadDrafter(shape)
        return makers

    def _driving(self, draft: ReloadableBackend) -> Drafter:
        """The drafter that drives the draft model, or the head."""
        backend, n_vocab = draft.backend, self.backend.n_vocab
        if isinstance(backend, HeadBackend):
            return HEAD_DRAFTERS[self.drafts_by](backend, n_vocab, self.room)
        return ModelDrafter(backend, n_vocab, self.room, shared_passes(backend))

    def token_seconds(self, drafter: Drafter, draft_costs: Calibration | None) -> float:
        """Seconds of a draft token, before any was drafted."""
        if drafter.name == self.drafts_by and draft_costs:
            return draft_costs.pass_seconds[1]
        if isinstance(drafter, LayerSkipDrafter):
            return timed(pass_runner(drafter.backend), 1, 5, float("inf"))
        return LOOKUP_SECONDS


def shared_passes(backend: Backend) -> SharedPasses | None:
    """The backend, where conversations can share its passes."""
    return backend if isinstance(backend, SharedBackend) else None
