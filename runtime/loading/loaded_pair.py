"""A pair in memory: planned, opened, calibrated and wired into a loop.

Knows backends and drafters by name; what is done with them is the loop's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from runtime.backends import library, rpc
from runtime.backends.devices import devices
from runtime.backends.early_exit import EarlyExitBackend
from runtime.backends.embedding import Embedder
from runtime.backends.head import HeadBackend
from runtime.backends.llama import LlamaBackend
from runtime.backends.reloadable import ReloadableBackend
from runtime.backends.shared import SharedBackend
from runtime.backends.workers import WorkerError
from runtime.core.backend import Backend, OnProgress, SharedPasses
from runtime.core.clock import steadiest, wall
from runtime.core.drafter import Drafter
from runtime.core.errors import HeadError, NoMemoryError
from runtime.drafters.eagle import EagleDrafter
from runtime.drafters.grammar import GrammarDrafter
from runtime.drafters.layerskip import LayerSkipDrafter
from runtime.drafters.lookahead import LookaheadDrafter, WindowShape
from runtime.drafters.model import ModelDrafter
from runtime.drafters.mtp import MtpDrafter
from runtime.drafters.ngram import NgramDrafter
from runtime.drafters.prediction import PredictionDrafter
from runtime.drafters.suffix import SuffixDrafter
from runtime.loading import layout
from runtime.loading.calibration import Calibration
from runtime.loading.exactness import Exactness
from runtime.loading.neighbours import Neighbours
from runtime.loading.opening import (
    Refused,
    load,
    open_context,
    open_draft,
    open_drafting_layers,
    open_head,
    open_target,
    window_shape,
)
from runtime.loading.options import Options
from runtime.loading.pass_timing import n_cores, pass_runner, thread_counts, timed
from runtime.loading.planning import EAGLE, MODEL, MTP, NEAR, drafts_by, n_snapshots, pair_spec, plan_of
from runtime.loading.profile import TargetProfile, replies_of
from runtime.loading.reaching import reach
from runtime.memory.fit import USUAL
from runtime.memory.footprint import ALL_LAYERS
from runtime.memory.pressure import PressureMonitor
from runtime.memory.system import MemoryReader
from runtime.models.registry import Pair, with_files
from runtime.speculative.company import Company
from runtime.speculative.control.controller import Controller
from runtime.speculative.control.reasons import Reason
from runtime.speculative.control.threads import Threads, Watch
from runtime.speculative.degradation import Degradation
from runtime.speculative.loop import SpecLoop

INEXACT = (
    "passes over several rows round otherwise than plain decode here, so a reply that is greedy or has a seed is "
    "decoded plainly"
)
LOOKUP_SECONDS = 5e-6  # a token of a drafter without a model, before any was measured


class LoadedPair:
    """An open pair. Closes everything it opened, in order."""

    def __init__(self, pair: Pair, options: Options, on_progress: OnProgress | None = None) -> None:
        self.pair = with_files(pair)
        fast = options.fast or pair.fast
        exact = options.exact or pair.exact or (not fast and layout.prefers_exact(pair.target))
        self.options = replace(options, exact=exact, fast=fast)
        self.names = pair.drafters if options.drafters is None else options.drafters  # of the drafters wanted
        self.off = None if self.names else Reason("user", "drafters are switched off")
        self.left_out: Reason | None = None  # why a drafter that was wanted cannot be had
        self.shortened = ""  # why the context is shorter than was asked for, if it is
        self._closers: list[Callable[[], None]] = []
        self._embedder: Embedder | None = None
        self._workers: tuple[str, ...] = ()  # that answer
        self._missing: WorkerError | None = None  # what is wrong with another
        self._neighbours = Neighbours()
        try:
            self._reach_workers(on_progress or (lambda what, share: True))
            self._plan()
            self._open(on_progress or (lambda what, share: True))
            self._calibrate()
            self._wire()
        except BaseException:
            self.close()
            raise

    def _reach_workers(self, on_progress: OnProgress) -> None:
        """Workers become devices. Drafters that look into the target cannot do so where its layers are elsewhere."""
        asked = self.pair.rpc if self.options.rpc is None else self.options.rpc
        self.options = replace(self.options, rpc=asked)
        if not asked:
            return
        self._workers, self._missing = reach(asked, self.options.patience, lambda: on_progress("target", 0.0))
        self._closers.append(rpc.hold(self._workers))
        if near := [name for name in self.names if name in NEAR]:
            self.names = tuple(name for name in self.names if name not in NEAR)
            self.left_out = Reason(
                "architecture", f"the {', '.join(near)} drafter is left out, as it looks into layers that workers have"
            )

    def _plan(self) -> None:
        """What fits into memory; the length of drafts follows from the context."""
        self.reader = MemoryReader(devices if library.has_gpu() or self._workers else tuple)
        self.spec = pair_spec(self.pair, self.options, bool({MODEL, EAGLE, MTP} & {*self.names}))
        self._drafts_by = drafts_by(self.spec)
        if self.spec and not {MODEL, self._drafts_by} & {*self.names}:
            self.spec = replace(self.spec, draft=None)
        try:
            self.plan = plan_of(self.spec, self.reader(), self.options, self.pair.target.name)
        except NoMemoryError as error:
            raise NoMemoryError(f"{self._missing} {error}") if self._missing else error from None
        if self._missing:
            self.shortened = f"{str(self._missing).partition('. ')[0]}, so the model is run without it"

    def _open(self, on_progress: OnProgress) -> None:
        """The target, its context, and the draft model."""
        n_gpu_layers = self.plan.n_gpu_layers if self.plan else ALL_LAYERS
        facts = self.spec.target if self.spec else None
        has_draft = self.plan is None or self.plan.with_draft
        self.target = load(
            self.pair.target,
            "target",
            on_progress,
            self.options.exact,
            n_gpu_layers,
            facts=facts,
            with_mtp=self._drafts_by == MTP and has_draft,
            workers=self._workers,
        )
        self._closers.append(self.target.close)
        asked = self.options.n_ctx or self.pair.context
        n_ctx = min(self.plan.n_ctx if self.plan else asked or USUAL, self.target.n_ctx_train)
        if n_ctx == self.target.n_ctx_train < (self.options.n_ctx or 0):
            why = "the model was trained on no more"
            self.shortened = f"the context holds {n_ctx} tokens, not {self.options.n_ctx}: {why}"
        most = n_snapshots(self.options) if self.target.is_recurrent else self.options.max_k
        self.options = replace(self.options, n_ctx=n_ctx, max_k=min(most, n_ctx // 2 - 1))
        self._open_target()
        self.draft = self._open_draft(on_progress)

    def _open_target(self) -> None:
        """The target's context; what cannot be drafted for is known before a draft model could take memory."""
        is_short = self.plan is not None and self.plan.is_frugal
        is_frugal = is_short or (self.target.is_recurrent and not self.names)
        exits_early = LayerSkipDrafter.name in self.names
        self._take_backend(*open_target(self.target, self.pair, self.options, exits_early, is_frugal))
        if self.names and not self.backend.n_rewindable:
            why = Reason("architecture", "this architecture cannot drop rejected tokens")
            self.names, self.off = (), Reason("memory", self.plan.text) if is_short and self.plan else why

    def _take_backend(self, backend: LlamaBackend, left_out: Reason | None) -> None:
        """The target's context, and why a drafter that needs another one is left out."""
        self.backend, self.left_out = backend, left_out or self.left_out
        self._closers.append(backend.close)

    def _open_draft(self, on_progress: OnProgress) -> ReloadableBackend | None:
        """None where there is none, or with a reason no memory for it; a file that is no draft for it is refused."""
        if not {MODEL, self._drafts_by} & {*self.names} or not (self.pair.draft or self._drafts_by == MTP):
            if {EAGLE, MTP} & {*self.names}:
                self.left_out = Reason("draft-error", self._lacking())
            return None
        if self.plan and not self.plan.with_draft:
            self.left_out = Reason("memory", self.plan.text)
            return None
        try:
            draft = self._opened_draft(on_progress)
        except (NoMemoryError, HeadError, MemoryError) as error:
            why = str(error).rstrip(".") or type(error).__name__
            self.left_out = Reason("draft-error", f"the draft model was left out: {why}")
            return None
        self._closers.append(draft.close)
        return draft

    def _opened_draft(self, on_progress: OnProgress) -> ReloadableBackend:
        """A model of its own, a head on the target, or the target's drafting layers."""
        if self.pair.draft is None:
            return open_drafting_layers(self.backend, self.options, on_progress)
        if self._drafts_by == EAGLE:
            return open_head(self.backend, self.pair.draft, self.spec, self.options, on_progress)
        return open_draft(self.target, self.pair.draft, self.spec, self.options, on_progress)

    def _lacking(self) -> str:
        """Why a head that was asked for is not there."""
        if EAGLE in self.names and self.pair.draft:
            return f"{self.pair.draft.name} is a model of its own, and no head for the eagle drafter"
        return f"{self.pair.target.name} has no drafting layer that can be used for the mtp drafter"

    def _calibrate(self) -> None:
        """What passes cost, and whether they are exact: measured now, or remembered."""
        self._n_taken = 0 if library.has_gpu() else round(self._neighbours.wait())
        clock = (
            steadiest() if self._n_taken and not self._workers else wall
        )  # who waits for a worker has no core either
        self._counts = [self.options.threads] if self.options.threads else thread_counts(self._n_taken)
        self.profile = TargetProfile(self.pair.target, self.backend, self.options)
        n_rows = self.options.max_k + 1
        # Threads of a target on workers are theirs
        counts = self._counts[-1:] if self._workers else self._counts
        self.costs = self.profile.calibration(self.backend, self.pair.target, counts, n_rows, clock)
        self.draft_costs: Calibration | None = None
        if self.draft is not None:
            path = self.pair.draft or self.pair.target
            self.draft_costs = self.profile.calibration(self.draft.backend, path, self._counts, 1, clock)
        self._shape = self._window_shape() if LookaheadDrafter.name in self.names else None
        self._factories = self._drafter_factories()
        is_asked = self._factories or shared_passes(self.backend)
        self.exactness = self.profile.exactness(self.backend) if is_asked else Exactness(1, 1)

    def _window_shape(self) -> WindowShape | None:
        """The window of the drafter lookahead, for which the context gets room; None with a reason where it cannot be
        had.
        """
        found = window_shape(self.costs.costs(), self.options, self.backend)
        if isinstance(found, Refused):
            self.left_out = Reason(found.code, f"the lookahead drafter is left out, because {found.why}")
            return None
        if not self.backend.can_branch:
            self.backend.close()
            self._take_backend(open_context(self.target, self.options, can_branch=True), self.left_out)
        return found

    def _drafter_factories(self) -> dict[str, Callable[[], Drafter]]:
        """What makes each drafter that can be had, in order of cost."""
        n_vocab, backend, draft, shape = self.target.vocab.n_vocab, self.backend, self.draft, self._shape
        factories: dict[str, Callable[[], Drafter]] = {
            GrammarDrafter.name: GrammarDrafter,
            PredictionDrafter.name: PredictionDrafter,
            NgramDrafter.name: NgramDrafter,
            SuffixDrafter.name: lambda: SuffixDrafter(replies_of(self.pair.target, self.target.vocab)),
        }
        factories = {name: make for name, make in factories.items() if name in self.names}
        if draft is not None:
            factories[self._drafts_by] = partial(self._draft_drafter, draft)
        if isinstance(backend, EarlyExitBackend):
            factories[LayerSkipDrafter.name] = lambda: LayerSkipDrafter(backend.early, n_vocab)
        if shape is not None:
            factories[LookaheadDrafter.name] = lambda: LookaheadDrafter(shape)
        return factories

    def _draft_drafter(self, draft: ReloadableBackend) -> Drafter:
        """The drafter that drives the draft model, or the head."""
        backend, n_vocab, room = draft.backend, self.target.vocab.n_vocab, self.options.max_k
        if isinstance(backend, HeadBackend):
            return (MtpDrafter if self._drafts_by == MTP else EagleDrafter)(backend, n_vocab, room)
        return ModelDrafter(backend, n_vocab, room, shared_passes(backend))

    def _wire(self) -> None:
        """Drafters, controller, threads and the watch over memory become one loop."""
        drafters = [make() for make in self._factories.values()]
        self.loop = SpecLoop(
            self.backend,
            drafters,
            self._controller(drafters),
            self.options.branches,
            self._threads(),
            self._degradation(),
            sys.maxsize if self.options.fast else self.exactness.width,
            self._company(),
        )
        self.loop.failed = self.left_out
        self.loop.inexact = Reason("exactness", f"{INEXACT}; {self._promise()}")
        for backend in (self.backend, self.draft):
            if backend is not None:
                backend.set_slots(self.options.slots)

    def _company(self) -> Company | None:
        """What decides which replies share passes; None where they have to take turns."""
        shared = shared_passes(self.backend)
        if shared is None:
            return None
        exact = self.exactness
        if self.options.fast or (exact.is_exact and exact.together):
            return Company(shared, sys.maxsize)
        return Company(shared, exact.width if exact.together else 1)

    def _promise(self) -> str:
        """What could be done about passes that round otherwise."""
        if self.options.exact and library.are_tiled():
            return "start Slipstream anew with `--exact`: another model's kernels are in use in this process"
        trial = layout.remembered(self.pair.target)
        return trial.promise if trial else "`--exact` lets it draft where the kernels can be exact"

    @property
    def is_elsewhere(self) -> bool:
        """Is the target on devices with memory of their own, here or on workers?"""
        return library.has_gpu() or bool(self._workers)

    @property
    def could_be_exact(self) -> bool:
        """Might another layout of the weights, which was not tried yet, let replies that can be predicted draft?"""
        is_open = not self.exactness.is_exact and not self.options.exact and not self.options.fast
        return is_open and not self.is_elsewhere and layout.remembered(self.pair.target) is None

    def _controller(self, drafters: list[Drafter]) -> Controller:
        """The controller, which begins with what was learned before and leaves what it learns for the next."""
        seconds = {drafter.name: self._token_seconds(drafter) for drafter in drafters}
        controller = Controller(
            self.costs.costs(),
            seconds,
            self.options.max_k,
            self.options.fixed_k,
            self.off,
            model_free=[drafter.name for drafter in drafters if drafter.is_model_free],
            own_costs=[LayerSkipDrafter.name],
            must_earn=[drafter.name for drafter in drafters if drafter.must_earn],
            window_rows={LookaheadDrafter.name: self._shape.n_window} if self._shape else {},
        )
        if drafters and self.options.fixed_k is None:
            self.profile.restore(controller, self.pair.draft)
            self._closers.append(lambda: self.profile.save(controller, self.pair.draft))
        return controller

    def _token_seconds(self, drafter: Drafter) -> float:
        """Seconds of a draft token, before any was drafted."""
        if drafter.name == self._drafts_by and self.draft_costs:
            return self.draft_costs.pass_seconds[1]
        if isinstance(drafter, LayerSkipDrafter):
            return timed(pass_runner(drafter.backend), 1, 5, float("inf"))
        return LOOKUP_SECONDS

    def _threads(self) -> Threads:
        drafting = self.draft_costs.one if self.draft_costs else self.costs.one
        apply = partial(set_threads, self.backend, self.draft)
        one, many = self.costs.one, self.costs.many
        if self.options.threads or self.is_elsewhere:
            return Threads(self._counts, one, many, drafting, apply)
        # Where all that were free are fastest, so will those be that become free
        one, many = (max(thread_counts()) if n == max(self._counts) else n for n in (one, many))
        watch = Watch(n_cores(), self._neighbours.busy_cores, self._n_taken)
        return Threads(thread_counts(), one, many, drafting, apply, watch)

    def _degradation(self) -> Degradation:
        """Drafters are given up between two tokens when memory runs short."""
        reserve = self.spec.draft_needs(self.backend.n_ctx) if self.spec and self.draft else 0
        monitor = PressureMonitor(self.reader, self.options.memory, reserve=reserve)
        return Degradation(
            monitor, lambda name: self._factories[name](), self.draft, self.options.slots, self._drafts_by
        )

    def embedder(self) -> Embedder:
        """The context for embeddings, made when it is first wanted."""
        if self._embedder is None:
            self._embedder = Embedder(
                self.target, self.backend.n_ctx, max(self.loop.threads.many.n if self.loop.threads else 1, 1)
            )
        return self._embedder

    def close_embedder(self) -> None:
        """Gives its memory back; may be called twice."""
        if self._embedder is not None:
            self._embedder.close()
            self._embedder = None

    def close(self) -> None:
        """Frees contexts before the models they stand on; may be called twice."""
        self.close_embedder()
        while self._closers:
            self._closers.pop()()


def set_threads(target: LlamaBackend, draft: ReloadableBackend | None, one: int, many: int, drafting: int) -> None:
    """Sets threads for the target's passes of one row and of several, and for the draft model's."""
    target.set_threads(one, many)
    if draft is not None:
        draft.set_threads(drafting, many)


def shared_passes(backend: Backend) -> SharedPasses | None:
    """The backend, where conversations can share its passes."""
    return backend if isinstance(backend, SharedBackend) else None
