"""A pair in memory: opened, calibrated and wired into a loop.

Knows backends and the needs of drafters; the loop uses them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from runtime.backends import library
from runtime.backends.embedding import Embedder
from runtime.backends.llama import LlamaBackend
from runtime.backends.reloadable import ReloadableBackend
from runtime.backends.translated import writable_share
from runtime.core.backend import OnProgress
from runtime.core.cores import Clock, n_cores, steadiest, wall
from runtime.core.drafter import Traits
from runtime.core.pressure import PressureMonitor, room_for_states
from runtime.drafters.lookahead import WindowShape
from runtime.drafters.registry import Needs, needing
from runtime.loading import layout
from runtime.loading.calibration import Calibration, found_never, known_never
from runtime.loading.decoding import Drafters, Maker, target_passes
from runtime.loading.exactness import Exactness
from runtime.loading.neighbours import Neighbours
from runtime.loading.open_pair import OpenPair
from runtime.loading.opening import open_context, window_shape
from runtime.loading.options import Options
from runtime.loading.pass_timing import thread_counts
from runtime.loading.profile import TargetProfile
from runtime.loading.profile_cache import fingerprint, record
from runtime.models.registry import Pair
from runtime.speculative.control.controller import Controller
from runtime.speculative.control.reasons import Reason
from runtime.speculative.control.threads import Threads, Watch
from runtime.speculative.decoder import Decoder
from runtime.speculative.degradation import Degradation


class LoadedPair(OpenPair):
    """An open pair, calibrated and wired into a loop."""

    def __init__(
        self, pair: Pair, options: Options, on_progress: OnProgress | None = None, learned: Path | None = None
    ) -> None:
        self._embedder: Embedder | None = None
        self._neighbours = Neighbours()
        super().__init__(pair, options, on_progress, learned)
        try:
            self._wire(self._calibrate(on_progress or (lambda what, share: True)))
        except BaseException:
            self.close()
            raise

    def _calibrate(self, on_progress: OnProgress) -> Drafters:
        """Measure the cost and exactness of passes, or restore them from a cache; open the draft if it could pay.
        Return the resources of drafters.
        """
        self._neighbours.wait_for_family()
        self._n_taken = 0 if library.has_gpu() else round(self._neighbours.wait())
        # Thread time does not include waiting for a worker
        clock = steadiest() if self._n_taken and not self._reached.workers else wall
        self._counts = [self.options.threads] if self.options.threads else thread_counts(self._n_taken)
        self.profile = TargetProfile(self.pair.target, self.backend, self.options)
        counts, n_rows, others = self._target_counts, self.backend.n_rows, Neighbours()
        self.costs = self.profile.calibration(self.backend, self.pair.target, counts, n_rows, clock)
        if not self._reached.workers:
            record(self.pair.target, self.costs.pass_seconds[1])
        self.draft_costs: Calibration | None = None
        if why := self._take_draft(clock, on_progress, self._n_taken == 0 and others.are_calm()):
            self.left_out = Reason("cost", f"the draft model was left out, because {why}")
        shape = self._window_shape() if needing(self.names, Needs.WINDOW) else None
        self._test_rounding()
        return Drafters(self.pair.target, self.backend, self.draft, self.wanted.drafts_by, shape, self.options.max_k)

    @property
    def _target_counts(self) -> list[int]:
        """Numbers of threads to try for the target; a single one with workers, which have threads of their own."""
        return self._counts[-1:] if self._reached.workers else self._counts

    def _take_draft(self, clock: Clock, on_progress: OnProgress, is_calm: bool) -> str:
        """Open and time the draft. Return why it was closed, if it cannot pay; a fixed draft length keeps it, and so
        does a machine that was not calm, as the controller times drafts and passes again while it replies.
        """
        path, costs, room = self.pair.draft or self.pair.target, self.costs.costs(), self.options.max_model_k
        is_judged = self.wanted.is_model and self.options.fixed_k is None
        cache = self.profile.cache("ceiling", room, self._counts, fingerprint(path)) if is_judged else None
        if cache and (why := known_never(cache, costs, room)):
            return why
        self._open_draft(on_progress)
        if self.draft is None:
            return ""
        others = Neighbours()
        self.draft_costs = self.profile.calibration(self.draft.backend, path, self._counts, 1, clock)
        if not (is_calm and others.are_calm()):
            return ""
        seconds, rate = self.draft_costs.pass_seconds[1], writable_share(self.draft.backend)
        why = found_never(cache, costs, seconds, room, rate) if cache else ""
        if why:
            self.draft.close()
            self.draft = self.draft_costs = None
            # Another start confirms this only if it measures by itself
            self.profile.forget_calibration(self.pair.target, self._target_counts, self.backend.n_rows)
        return why

    def _test_rounding(self) -> None:
        """Find up to which width passes are exact, and whether prompts are read in tiles; also without drafters."""
        self.roundings = self.profile.roundings(self.backend, self.costs.costs())
        self.costs = self.costs.padded(self.roundings.bare.padded)
        if not self.roundings.adapted.prefill and not self.target.is_recurrent:
            self.backend.read_in_tiles()

    def _window_shape(self) -> WindowShape | None:
        """Return the window of the lookahead drafter, and give the context room for it. None, with a reason in
        `left_out`, where it is unavailable.
        """
        found = window_shape(self.costs.costs(), self.options, self.backend)
        if isinstance(found, Reason):
            self.left_out = self.left_out or found
            return None
        if not self.backend.can_branch:
            self.backend.close()
            self._take_backend(open_context(self.target, self.options, can_branch=True), self.left_out)
        return found

    def _wire(self, given: Drafters) -> None:
        """Connect drafters, controller, threads and memory monitor in one decoder."""
        makers = given.makers(self.names)
        drafters = [make() for make in makers.values()]
        controller = self._controller({each.name: given.traits(each, self.draft_costs) for each in drafters})
        target, adapted = (
            target_passes(self.backend, each, self.options.fast, self._promise(each is not self.roundings.bare))
            for each in (self.roundings.bare, self.roundings.adapted)
        )
        target.adapted = adapted
        self.decoder = Decoder(target, drafters, controller, self._threads(), self._degradation(makers))
        self.decoder.active.failed, self.decoder.controller.passes.is_far = self.left_out, bool(self._reached.workers)
        self.decoder.controller.begin(0)  # values drafters now and not during the first reply
        for backend in (self.backend, self.draft):
            if backend is not None:
                backend.set_slots(self.options.slots)
        self.backend.saved.room = partial(room_for_states, self.reader, self.options.memory)

    def _promise(self, is_adapted: bool) -> str:
        """Return the user's options for passes that round differently, as a clause for the screen."""
        if library.has_gpu() or is_adapted:
            return "`--fast` allows drafts, but a close choice may then differ"
        if self.options.exact and library.are_tiled():
            return "restart Slipstream with `--exact`: this process already uses another model's kernels"
        trial = layout.remembered(self.pair.target)
        return trial.promise if trial else "`--exact` allows drafts where the kernels can be exact"

    @property
    def exactness(self) -> Exactness:
        """What the self-test found for replies that name no adapters."""
        return self.roundings.of(self.target.adapters.named(None))

    @property
    def could_be_exact(self) -> bool:
        """Whether another layout of the weights, not tried yet, might allow drafts for greedy and seeded replies."""
        asked = self.options.exact or self.options.fast or self.is_elsewhere or self.target.adapters.named(None)
        return not asked and self.exactness.width < self.exactness.tried and not layout.remembered(self.pair.target)

    def _controller(self, drafters: Mapping[str, Traits]) -> Controller:
        """Return the controller, which starts from the last run's statistics and saves its own for the next run."""
        controller = Controller(self.costs.costs(), drafters, self.options.max_k, self.options.fixed_k, self.off)
        if drafters and self.options.fixed_k is None:
            self.profile.restore(controller, self.pair.draft)
            self._closers.append(lambda: self.profile.save(controller, self.pair.draft))
        return controller

    @property
    def drafts_by(self) -> str:
        """Name of the drafter that uses the pair's draft, if that is open; else ""."""
        return self.wanted.drafts_by if self.draft is not None else ""

    @property
    def learned(self) -> Path | None:
        """File of the learned head, if that is the one in use."""
        return self.wanted.head.learned if self.wanted.head else None

    def take_head(self, learned: Path | None) -> None:
        """Replace the current head by the one in that file; None is the pair's own. Only between two replies.
        The new head is available within the first steps of the next reply, whose text does not depend on it.
        """
        assert self.wanted.head is not None
        self.wanted.head.learned = learned
        self.decoder.active.renew()

    def _threads(self) -> Threads:
        drafting = self.draft_costs.one if self.draft_costs else self.costs.one
        apply = partial(set_threads, self.backend, self.draft)
        one, many = self.costs.one, self.costs.many
        if self.options.threads or self.is_elsewhere:
            return Threads(one, many, drafting, apply)
        # If all free threads are fastest, those that become free later will be as well
        one, many = (max(thread_counts()) if n == max(self._counts) else n for n in (one, many))
        return Threads(one, many, drafting, apply, Watch(n_cores(), self._neighbours, self._n_taken))

    def _degradation(self, makers: Mapping[str, Maker]) -> Degradation:
        """Return the monitor that closes drafters between two tokens when memory runs short."""
        spec = self.wanted.spec
        reserve = spec.draft_needs(self.backend.n_ctx) if spec and self.draft else 0
        monitor = PressureMonitor(self.reader, self.options.memory, reserve=reserve)
        return Degradation(monitor, lambda name: makers[name](), self.draft, self.options.slots, self.wanted.drafts_by)

    def embedder(self) -> Embedder:
        """Return the context for embeddings, created on first use."""
        if self._embedder is None:
            threads = self.decoder.controller.passes.threads
            self._embedder = Embedder(self.target, self.backend.n_ctx, threads.many.n if threads else 1)
        return self._embedder

    def close_embedder(self) -> None:
        """Free the memory of the embedder; may be called twice."""
        if self._embedder is not None:
            self._embedder.close()
            self._embedder = None

    def close(self) -> None:
        """Free contexts before the models that they use; may be called twice."""
        self.close_embedder()
        super().close()


def set_threads(target: LlamaBackend, draft: ReloadableBackend | None, one: int, many: int, drafting: int) -> None:
    """Set the threads of the target's passes of one row and of several, and of the draft model's passes."""
    target.set_threads(one, many)
    if draft is not None:
        draft.set_threads(drafting, many)
