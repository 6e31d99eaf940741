"""Opens a pair: models, contexts, the vocabulary check, and the measurements that every later choice rests on.

Knows backends and drafters by name; what is done with them is the loop's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial

from runtime.backends import library
from runtime.backends.devices import devices
from runtime.backends.early_exit import EarlyExitBackend
from runtime.backends.embedding import Embedder
from runtime.backends.llama import LlamaBackend
from runtime.backends.nodes import EarlyExitError
from runtime.backends.reloadable import Releasable
from runtime.core.backend import Backend
from runtime.core.draft import Drafter
from runtime.core.errors import RoomError, SettingsError
from runtime.drafters.grammar import GrammarDrafter
from runtime.drafters.layerskip import LayerSkipDrafter
from runtime.drafters.lookahead import MIN_ROWS, LookaheadDrafter, best_shape
from runtime.drafters.model import ModelDrafter
from runtime.drafters.ngram import NgramDrafter
from runtime.drafters.prediction import PredictionDrafter
from runtime.drafters.suffix import SuffixDrafter
from runtime.loading.calibration import cores, passes
from runtime.loading.exactness import Exactness
from runtime.loading.models import load, open_draft, open_early_exit
from runtime.loading.options import OnProgress, Options
from runtime.loading.profile import Remembered, replies_of
from runtime.memory.footprint import ALL_LAYERS, FLOOR, Plan, Way, Wish, fit, room_of, wish_of
from runtime.memory.offload import fit_devices
from runtime.memory.pressure import Watch, is_sane
from runtime.memory.system import System
from runtime.models.registry import Pair
from runtime.speculative.control.controller import Controller
from runtime.speculative.control.costs import PassCosts, timed
from runtime.speculative.control.reasons import Reason
from runtime.speculative.control.threads import Threads
from runtime.speculative.degradation import Shortage
from runtime.speculative.loop import SpecLoop

LOOKUP_SECONDS = 5e-6  # a token of a free drafter, before any was measured
TARGET_BATCH = 512  # rows of the target's prefill


class Loaded:
    """An open pair. Closes everything it opened, in order."""

    def __init__(self, pair: Pair, options: Options, on_progress: OnProgress | None = None) -> None:
        self.pair = pair
        self._open: list[Callable[[], None]] = []
        self._embedder: Embedder | None = None
        try:
            self._load(options, on_progress or (lambda what, share: True))
        except BaseException:
            self.close()
            raise

    def _load(self, options: Options, on_progress: OnProgress) -> None:
        names = self.pair.drafters if options.drafters is None else options.drafters
        off = None if names else Reason("user", "drafters are switched off")
        options = replace(options, exact=options.exact or self.pair.exact)
        self.memory = System(devices if library.has_gpu() else tuple)
        wish = self._wish(options, names)
        self.plan = self._plan(wish, options)
        self.target = load(
            self.pair.target, "target", on_progress, options.exact, self.plan.n_gpu_layers if self.plan else ALL_LAYERS
        )
        self._open.append(self.target.close)
        n_ctx = min(self.plan.n_ctx if self.plan else options.n_ctx or self.pair.context, self.target.n_ctx_train)
        options = replace(options, max_k=min(options.max_k, n_ctx // 2 - 1))
        self.left_out: Reason | None = None  # a drafter that cannot be had for this target
        self.backend = self._target_backend(options, n_ctx, "layerskip" in names)
        if names and not self.backend.can_rewind:  # decided before a draft model could take memory
            names, off = (), Reason("architecture", "this architecture cannot drop rejected tokens")
        counts = [options.threads] if options.threads else cores()
        remembered = Remembered(self.pair.target, self.backend, options)
        known = remembered.calibration(self.backend, self.pair.target, counts, options.max_k + 1)
        lookahead = self._lookahead(known.costs(), options, n_ctx) if LookaheadDrafter.name in names else None
        drafters, drafting = self._drafters(names), known.one
        seconds = {drafter.name: LOOKUP_SECONDS for drafter in drafters}
        draft_backend = self._draft_if_possible(names, wish, n_ctx, options, on_progress)
        if draft_backend is not None and self.pair.draft is not None:
            measured = remembered.calibration(draft_backend, self.pair.draft, counts, 1)
            drafters.append(ModelDrafter(draft_backend, self.target.vocab.n_vocab, options.max_k))
            seconds[ModelDrafter.name], drafting = measured.passes[1], measured.one
        if isinstance(self.backend, EarlyExitBackend):
            drafters.append(LayerSkipDrafter(self.backend.early, self.target.vocab.n_vocab))
            seconds[LayerSkipDrafter.name] = timed(passes(self.backend.early), 1, 5, float("inf"))
        riding: dict[str, int] = {}
        if lookahead:
            drafters.append(lookahead)
            seconds[lookahead.name], riding = LOOKUP_SECONDS, {lookahead.name: lookahead.shape.n_window}
        free = [drafter.name for drafter in drafters if drafter.is_free]
        controller = Controller(
            known.costs(), seconds, options.max_k, options.fixed_k, off, free, [LayerSkipDrafter.name], riding
        )
        if drafters and options.fixed_k is None:
            self._open.append(remembered.teach(controller, self.pair.draft))
        threads = Threads(counts, known.one, known.many, drafting, partial(set_threads, self.backend, draft_backend))
        self.exactness = remembered.exactness(self.backend) if drafters else Exactness(1, 1)
        self.loop = SpecLoop(self.backend, drafters, controller, options.branches, threads)
        self.loop.failed = self.left_out
        reserve = wish.draft_needs(n_ctx) if wish and draft_backend else 0
        self._watch_memory(Watch(self.memory, options.memory, reserve=reserve), draft_backend, names, options.n_kept)

    def _watch_memory(self, watch: Watch, draft: Releasable | None, names: Collection[str], n_kept: int) -> None:
        """Drafters are given up between two tokens when it runs short."""
        for backend in (self.backend, draft):
            if backend is not None:
                backend.keep(n_kept)
        self.shortage = Shortage(self.loop, watch, draft, partial(self._drafters, names), n_kept)
        self.loop.watch = self.shortage.look
        self._open.append(self.shortage.close)

    def _wish(self, options: Options, names: Collection[str]) -> Wish | None:
        """What the pair is to have; a context that was asked for is not made shorter."""
        way = Way(
            options.n_ctx or self.pair.context,
            n_rows=options.max_k + 1,
            n_batch=TARGET_BATCH,
            repacks=library.repacks(options.exact),
        )
        draft, floor = self.pair.draft if "model" in names else None, options.n_ctx or FLOOR
        return wish_of(self.pair.target, draft, way, floor, options.draft_window, library.has_gpu())

    def _plan(self, wish: Wish | None, options: Options) -> Plan | None:
        """What memory allows; None where that is not known. Raises ModelError when not even the target fits."""
        reading = self.memory()
        room, devices = room_of(reading, options.memory), [place for place in reading.places if place.is_device]
        if wish and devices:  # one that does not know its own memory leaves everything to the library
            return (
                fit_devices(wish, devices, room, options.memory, self.pair.target.name)
                if all(map(is_sane, devices))
                else None
            )
        return fit(wish, room, self.pair.target.name) if wish and room else None

    def _drafters(self, names: Collection[str]) -> list[Drafter]:
        """Those that cost nothing but a look."""
        drafters: list[Drafter] = [
            make() for make in (GrammarDrafter, PredictionDrafter, NgramDrafter) if make.name in names
        ]
        return (
            [*drafters, SuffixDrafter(replies_of(self.pair.target, self.target.vocab))]
            if SuffixDrafter.name in names
            else drafters
        )

    def _lookahead(self, costs: PassCosts, options: Options, n_ctx: int) -> LookaheadDrafter | None:
        """In the shape that is best for what passes cost here; none where not even that pays.

        A fixed draft length asks for the most tokens.
        """
        code, why = "user", ""
        if options.max_k < MIN_ROWS:
            why = f"it needs a draft length of {MIN_ROWS} or more (`--max-k`)"
        elif isinstance(self.backend, EarlyExitBackend):
            why = "its trees leave the cache out of order, which layerskip needs"
        else:
            shape, gain = best_shape(
                costs.up_to(options.max_k + 1, 0) if options.fixed_k is None else [1.0] * (options.max_k + 1)
            )
            if gain > 1:
                self._let_branch(options, n_ctx)
                return LookaheadDrafter(shape)
            code, why = "cost", f"rows cost too much here: it promises {gain:.2f} times plain decode at best"
        self.left_out = Reason(code, f"the lookahead drafter is left out, because {why}")
        return None

    def _let_branch(self, options: Options, n_ctx: int) -> None:
        """Opens the target's context anew, if it has no room for trees: that room makes every pass dearer."""
        if not self.backend.can_branch:
            self._open.pop()()
            self.backend = self._context(options, n_ctx, can_branch=True)

    def _draft_if_possible(
        self, names: Collection[str], wish: Wish | None, n_ctx: int, options: Options, on_progress: OnProgress
    ) -> Releasable | None:
        """None where there is none, or with a reason no memory for it: the target decodes without.

        A file that is no draft for it is refused.
        """
        if self.pair.draft is None or ModelDrafter.name not in names:
            return None
        if self.plan and not self.plan.with_draft:
            self.left_out = Reason("memory", self.plan.text)
            return None
        try:
            draft = open_draft(self.target, self.pair.draft, wish, n_ctx, options, on_progress)
        except (RoomError, MemoryError) as error:
            self.left_out = Reason(
                "draft-error", f"the draft model was left out: {str(error).rstrip('.') or type(error).__name__}"
            )
            return None
        self._open.append(draft.close)
        return draft

    def _target_backend(self, options: Options, n_ctx: int, exits_early: bool) -> LlamaBackend:
        """The target's context: one that can exit early where that is wanted and possible."""
        if exits_early:
            try:
                backend = open_early_exit(self.target, self.pair, options, n_ctx)
                self._open.append(backend.close)
                return backend
            except EarlyExitError as why:
                if "layerskip" not in self.pair.drafters:
                    message = (
                        f"The drafter 'layerskip' cannot run on {self.pair.target.name}, because {why}. Leave it out "
                        "of `--drafters`."
                    )
                    raise SettingsError(message) from why
                self.left_out = Reason("architecture", f"the layerskip drafter is left out, because {why}")
        return self._context(options, n_ctx, options.branches > 0)

    def _context(self, options: Options, n_ctx: int, can_branch: bool) -> LlamaBackend:
        """Of the target."""
        backend = LlamaBackend(self.target, n_ctx, options.max_k + 1, TARGET_BATCH, can_branch)
        self._open.append(backend.close)
        return backend

    def embedder(self) -> Embedder:
        """Made when it is first wanted."""
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
        while self._open:
            self._open.pop()()


def set_threads(target: Backend, draft: Backend | None, one: int, many: int, drafting: int) -> None:
    """For the target's passes of one row and of several, and for the draft model's."""
    target.set_threads(one, many)
    if draft is not None:
        draft.set_threads(drafting, many)
