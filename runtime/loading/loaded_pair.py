"""A pair in memory: planned, opened, calibrated and wired into a loop.

Knows backends and drafters by name; what is done with them is the loop's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from runtime.backends import library, rpc
from runtime.backends.devices import devices
from runtime.backends.embedding import Embedder
from runtime.backends.llama import LlamaBackend
from runtime.backends.reloadable import ReloadableBackend
from runtime.backends.workers import WorkerError
from runtime.core.backend import OnProgress
from runtime.core.clock import steadiest, wall
from runtime.core.drafter import Drafter
from runtime.core.errors import NoMemoryError
from runtime.drafters.layerskip import LayerSkipDrafter
from runtime.drafters.lookahead import LookaheadDrafter, WindowShape
from runtime.loading import layout
from runtime.loading.calibration import Calibration
from runtime.loading.draft import Wanted
from runtime.loading.drafters import Drafters, shared_passes
from runtime.loading.exactness import Exactness
from runtime.loading.heads import HeadFile
from runtime.loading.neighbours import Neighbours
from runtime.loading.opening import Refused, load, open_context, open_target, window_shape
from runtime.loading.options import Options
from runtime.loading.pass_timing import n_cores, thread_counts
from runtime.loading.planning import HEADS, MODEL, MTP, NEAR, drafts_by, n_snapshots, pair_spec, plan_of
from runtime.loading.profile import TargetProfile
from runtime.loading.reaching import reach
from runtime.memory.fit import USUAL
from runtime.memory.footprint import ALL_LAYERS
from runtime.memory.pressure import PressureMonitor, Reading
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
SHARES = 1.0, 0.5, 0.25  # of the memory that devices say is free, in the order in which they are tried


class LoadedPair:
    """An open pair, whose head may be one that was `learned` from its own. Closes everything it opened, in order."""

    def __init__(
        self, pair: Pair, options: Options, on_progress: OnProgress | None = None, learned: Path | None = None
    ) -> None:
        if options.without_gpu:
            library.leave_gpus()
        self.pair = with_files(pair)
        fast = options.fast or pair.fast
        exact = options.exact or pair.exact or (not fast and layout.prefers_exact(pair.target))
        self.options = replace(options, exact=exact, fast=fast)
        self.names = pair.drafters if options.drafters is None else options.drafters  # of the drafters wanted
        self.off = None if self.names else Reason("user", "drafters are switched off")
        self.left_out: Reason | None = None  # why a drafter that was wanted cannot be had
        self.shortened = ""  # why the context is shorter than was asked for, if it is
        self._head_file = HeadFile(self.pair.draft, learned) if self.pair.draft else None
        self._closers: list[Callable[[], None]] = []
        self._embedder: Embedder | None = None
        self._workers: tuple[str, ...] = ()  # that answer
        self._missing: WorkerError | None = None  # what is wrong with another
        self._neighbours = Neighbours()
        try:
            report = on_progress or (lambda what, share: True)
            self._reach_workers(report)
            self._open_what_fits(report)
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

    def _open_what_fits(self, on_progress: OnProgress) -> None:
        """A GPU that has less memory than it says is taken to have less and less of it; in the end it is left alone."""
        asked = self.options, self.names, self.off
        for share in SHARES:
            try:
                self._plan(share)
                return self._open(on_progress)
            except NoMemoryError:
                self._free()
                if not library.has_gpu():
                    raise
                self.options, self.names, self.off = asked
        library.leave_gpus()
        self._workers = ()
        self._plan()
        self.shortened = "the processor computes alone, because the GPU has less memory than it says"
        return self._open(on_progress)

    def _plan(self, share: float = 1.0) -> None:
        """What fits into memory, of which devices have that share of what they say; the length of drafts follows from
        the context.
        """
        self.reader = MemoryReader(devices if library.has_gpu() or self._workers else tuple)
        self.spec = pair_spec(self.pair, self.options, bool((HEADS | {MODEL}) & {*self.names}))
        self._drafts_by = drafts_by(self.pair, self.spec)
        if self.spec and not {MODEL, self._drafts_by} & {*self.names}:
            self.spec = replace(self.spec, draft=None)
        try:
            self.plan = plan_of(self.spec, with_share(self.reader(), share), self.options, self.pair.target.name)
        except NoMemoryError as error:
            raise NoMemoryError(f"{self._missing} {error}") if self._missing else error from None
        if self._missing:
            self.shortened = f"{str(self._missing).partition('. ')[0]}, so the model is run without it"

    def _open(self, on_progress: OnProgress) -> None:
        """The target, its context, and the draft model."""
        n_gpu_layers = self.plan.n_gpu_layers if self.plan else ALL_LAYERS
        facts = self.spec.target if self.spec else None
        has_draft = self.plan is None or self.plan.with_draft
        wanted = Wanted(self.pair, self.spec, self.plan, self._drafts_by, self.names, self._head_file)
        refused = wanted.try_out(on_progress)
        self.target = load(
            self.pair.target,
            "target",
            on_progress,
            self.options.exact,
            n_gpu_layers,
            facts=facts,
            with_mtp=self._drafts_by == MTP and has_draft and not refused,
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
        wanted = replace(wanted, names=self.names)  # some may not be had with it
        found = (None, refused) if refused else wanted.open(self.backend, self.options, on_progress)
        self.draft, lacking = found
        self.left_out = lacking or self.left_out
        if self.draft is not None:
            self._closers.append(self.draft.close)

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

    def _calibrate(self) -> None:
        """What passes cost, and whether they are exact: measured now, or remembered."""
        self._n_taken = 0 if library.has_gpu() else round(self._neighbours.wait())
        # Who waits for a worker has no core either
        clock = steadiest() if self._n_taken and not self._workers else wall
        self._counts = [self.options.threads] if self.options.threads else thread_counts(self._n_taken)
        self.profile = TargetProfile(self.pair.target, self.backend, self.options)
        n_rows = self.backend.n_rows
        # Threads of a target on workers are theirs
        counts = self._counts[-1:] if self._workers else self._counts
        self.costs = self.profile.calibration(self.backend, self.pair.target, counts, n_rows, clock)
        self.draft_costs: Calibration | None = None
        if self.draft is not None:
            path = self.pair.draft or self.pair.target
            self.draft_costs = self.profile.calibration(self.draft.backend, path, self._counts, 1, clock)
        self._shape = self._window_shape() if LookaheadDrafter.name in self.names else None
        room, draft = self.options.max_k, self.draft
        self._drafters = Drafters(self.pair.target, self.backend, draft, self._drafts_by, self._shape, room)
        self._makers = self._drafters.makers(self.names)
        self._test_rounding()

    def _test_rounding(self) -> None:
        """Up to which width passes are exact, and in which pieces prompts must be read."""
        # Padded passes decide about the text, drafts or not
        if self._makers or shared_passes(self.backend) or library.has_gpu():
            self.exactness = self.profile.exactness(self.backend, self.costs.costs())
            reads_alike = self.exactness.prefill
        else:
            self.exactness, reads_alike = Exactness(1, 1), self.profile.reads_alike(self.backend)
        self.costs = self.costs.padded(self.exactness.padded)
        if not reads_alike and not self.target.is_recurrent:
            self.backend.read_in_tiles()

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

    def _wire(self) -> None:
        """Drafters, controller, threads and the watch over memory become one loop."""
        drafters = [make() for make in self._makers.values()]
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
        if self.exactness.padded and not self.options.fast:  # else it is the same wherever a pass begins
            self.loop.rows_at = self._exact_rows
        self.loop.lineup.failed, self.loop.stopwatch.is_far = self.left_out, bool(self._workers)
        self.loop.inexact = Reason("exactness", f"{INEXACT}; {self._promise()}")
        self.loop.controller.begin(0)  # drafters are valued now, and not while the first reply is waited for
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

    def _exact_rows(self, n_context: int) -> int:
        """Rows of a pass after so many tokens, up to which it rounds as plain decode does."""
        return self.exactness.rows_at(n_context, self.backend.n_ctx, self.backend.n_before)

    def _promise(self) -> str:
        """What could be done about passes that round otherwise."""
        if library.has_gpu():
            return "`--fast` lets it draft, where a close choice may fall otherwise"
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
        seconds = {each.name: self._drafters.token_seconds(each, self.draft_costs) for each in drafters}
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

    @property
    def drafts_by(self) -> str:
        """The drafter that the pair's draft is for, if it is there; else ""."""
        return self._drafts_by if self.draft is not None else ""

    @property
    def learned(self) -> Path | None:
        """The file of the head that was learned, if that is the one which is used."""
        return self._head_file.learned if self._head_file else None

    def take_head(self, learned: Path | None) -> None:
        """Has that head take the place of the one there is; None is the pair's own. Between two replies only; it is
        there within the first steps of the next, and the text depends on neither.
        """
        assert self._head_file is not None
        self._head_file.learned = learned
        self.loop.lineup.renew(self.loop.request)

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
        return Degradation(monitor, lambda name: self._makers[name](), self.draft, self.options.slots, self._drafts_by)

    def embedder(self) -> Embedder:
        """The context for embeddings, made when it is first wanted."""
        if self._embedder is None:
            self._embedder = Embedder(
                self.target,
                self.backend.n_ctx,
                max(self.loop.stopwatch.threads.many.n if self.loop.stopwatch.threads else 1, 1),
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
        self._free()

    def _free(self) -> None:
        while self._closers:
            self._closers.pop()()


def set_threads(target: LlamaBackend, draft: ReloadableBackend | None, one: int, many: int, drafting: int) -> None:
    """Sets threads for the target's passes of one row and of several, and for the draft model's."""
    target.set_threads(one, many)
    if draft is not None:
        draft.set_threads(drafting, many)


def with_share(reading: Reading, share: float) -> Reading:
    """The same where devices have only that share of the memory that they say is free."""
    pools = (replace(pool, free=int(share * pool.free)) if pool.is_device else pool for pool in reading.pools)
    return replace(reading, pools=tuple(pools))
