"""A pair with loaded models and open contexts, planned to fit into free memory.

Knows files, devices and backends; measures nothing and decodes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from runtime.backends import library, rpc
from runtime.backends.library import devices
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.backends.reloadable import ReloadableBackend
from runtime.backends.workers import RpcWorker, WorkerError, ask
from runtime.core.backend import OnProgress
from runtime.core.errors import NoMemoryError
from runtime.core.memory import MemoryReader
from runtime.core.pressure import Reading
from runtime.drafters.registry import Needs, described, needing
from runtime.loading import layout
from runtime.loading.cache_types import fastest
from runtime.loading.draft import WantedDraft
from runtime.loading.eyes import n_needed, open_eyes
from runtime.loading.fit import DEFAULT_CONTEXT, LoadPlan
from runtime.loading.footprint import ALL_LAYERS
from runtime.loading.heads import HeadSource
from runtime.loading.opening import load, open_target
from runtime.loading.options import Options
from runtime.loading.planning import HEADS, MODEL, MTP, drafts_by, n_snapshots, pair_spec, plan_with_halves, plan_within
from runtime.models.cache_layout import HALVES
from runtime.models.registry import Pair, with_files
from runtime.speculative.control.reasons import Reason

POLL_SECONDS = 0.5  # seconds between two queries of a missing worker
SHARES = 1.0, 0.5, 0.25  # of the memory that devices report as free, in the order in which they are tried


class OpenPair:
    """A pair with open models and contexts. Its head may be one that was `learned` from its own."""

    def __init__(self, pair: Pair, options: Options, on_progress: OnProgress | None, learned: Path | None) -> None:
        if options.without_gpu:
            library.leave_gpus()
        self.pair = with_files(pair)
        fast = options.fast or pair.fast
        is_asked = options.exact or pair.exact
        exact = is_asked or (not fast and layout.prefers_exact(pair.target))
        reserved = options.reserved + n_needed(self.pair, options)
        self.options = replace(options, exact=exact, is_exact_asked=is_asked, fast=fast, reserved=reserved)
        self.names = pair.drafters if options.drafters is None else options.drafters  # of the requested drafters
        self.off = None if self.names else Reason("user", "drafters are switched off")
        self.left_out: Reason | None = None  # why a requested drafter is unavailable
        self.draft: ReloadableBackend | None = None
        self.shortened = ""  # why the pair runs with less than was requested, if it does
        self._closers: list[Callable[[], None]] = []
        self._reached = Reached()
        try:
            report = on_progress or (lambda what, share: True)
            self._reach_workers(report)
            self._open_what_fits(report, HeadSource(self.pair.draft, learned) if self.pair.draft else None)
        except BaseException:
            self.close()
            raise

    def _reach_workers(self, on_progress: OnProgress) -> None:
        """Register workers as devices; leave out drafters that read the target's layers, which are on workers then."""
        asked = self.pair.rpc if self.options.rpc is None else self.options.rpc
        self.options = replace(self.options, rpc=asked)
        if not asked:
            return
        self._reached = reach(asked, self.options.worker_timeout, lambda: on_progress("target", 0.0))
        self._closers.append(rpc.hold(self._reached.workers))
        if near := needing(self.names, Needs.HEAD, Needs.EARLY_EXIT):
            self.names = tuple(name for name in self.names if name not in near)
            sources = " and ".join(map(described, near))
            why = f"guesses from {sources} are left out, because they read layers that are on workers"
            self.left_out = Reason("architecture", why)

    def _open_what_fits(self, on_progress: OnProgress, head: HeadSource | None) -> None:
        """Plan and open the pair.

        If a GPU has less memory than it reports, retry with smaller shares of it, and at last without GPUs.
        """
        asked = self.options, self.names, self.off
        for share in SHARES:
            try:
                self._plan(head, share)
                return self._open(on_progress)
            except NoMemoryError:
                self._free()
                if not library.has_gpu() or self.options.is_whole:
                    raise
                self.options, self.names, self.off = asked
        library.leave_gpus()
        self._reached = self._reached._replace(workers=())
        self._plan(head)
        self.shortened = "the model runs on the processor only, because the GPU has less memory than it reports"
        return self._open(on_progress)

    def _plan(self, head: HeadSource | None, share: float = 1.0) -> None:
        """Plan what fits into memory, if devices have `share` of what they report as free. Raises NoMemoryError."""
        missing, self.reader = self._reached.missing, MemoryReader(devices if self.is_elsewhere else tuple)
        spec = pair_spec(self.pair, self.options, bool((HEADS | {MODEL}) & {*self.names}))
        by = drafts_by(self.pair, spec)
        if spec and not {MODEL, by} & {*self.names}:
            spec = replace(spec, draft=None)
        try:
            plan = plan_within(spec, with_share(self.reader(), share), self.options, self.pair.target.name)
        except NoMemoryError as error:
            raise NoMemoryError(f"{missing} {error}") if missing else error from None
        if missing:
            self.shortened = f"{str(missing).partition('. ')[0]}, so the model is run without it"
        self.wanted = WantedDraft(self.pair, spec, plan, by, self.names, head)

    def _open(self, on_progress: OnProgress) -> None:
        """Open the target and its context, which limits the length of drafts."""
        spec, plan = self.wanted.spec, self.wanted.plan
        has_draft = plan is None or plan.with_draft
        halves = plan_with_halves(spec, self.reader().without(self.options.reserved), self.options)
        refused = self.wanted.try_out(on_progress)
        target = load(
            self.pair.target,
            "target",
            on_progress,
            self.options.exact,
            plan.n_gpu_layers if plan else ALL_LAYERS,
            facts=spec.target if spec else None,
            with_mtp=self.wanted.drafts_by == MTP and not self.pair.draft and has_draft and not refused,
            workers=self._reached.workers,
        )
        self._closers.append(target.close)
        target.load_adapters(self.pair.lora)
        open_eyes(target, self.pair, self.options, on_progress)
        if halves and fastest(target, halves[1].n_ctx) == HALVES:
            spec, plan, target.cache_types = *halves, HALVES
        asked = self.options.n_ctx or self.pair.context
        n_ctx = min(plan.n_ctx if plan else asked or DEFAULT_CONTEXT, target.n_ctx_train)
        if n_ctx == target.n_ctx_train < (self.options.n_ctx or 0):
            why = "the model was trained on no more"
            self.shortened = f"the context holds {n_ctx} tokens, not {self.options.n_ctx}: {why}"
        most = n_snapshots(self.options) if target.is_recurrent else self.options.max_k
        self.options = replace(self.options, n_ctx=n_ctx, max_k=min(most, n_ctx // 2 - 1))
        self._open_target(target, plan)
        # Some drafters may be dropped by now
        self.wanted = replace(self.wanted, spec=spec, plan=plan, names=self.names, refused=refused)

    @property
    def target(self) -> LlamaModel:
        """The target's model."""
        return self.backend.model

    @property
    def is_elsewhere(self) -> bool:
        """Whether the target is on devices with memory of their own, here or on workers."""
        return library.has_gpu() or bool(self._reached.workers)

    def _open_draft(self, on_progress: OnProgress) -> None:
        """Open the draft, if there is one."""
        self.draft, lacking = self.wanted.open(self.backend, self.options, on_progress)
        self.left_out = lacking or self.left_out
        if self.draft is not None:
            self._closers.append(self.draft.close)

    def _open_target(self, target: LlamaModel, plan: LoadPlan | None) -> None:
        """Open the target's context, and drop all drafters if it cannot rewind, before a draft model takes memory."""
        is_short = plan is not None and plan.is_frugal
        is_frugal = is_short or (target.is_recurrent and not self.names)
        exits_early = bool(needing(self.names, Needs.EARLY_EXIT))
        self._take_backend(*open_target(target, self.pair, self.options, exits_early, is_frugal))
        if self.names and not self.backend.n_rewindable:
            why = Reason("architecture", "this architecture cannot drop rejected tokens")
            self.names, self.off = (), Reason("memory", plan.text) if is_short and plan else why

    def _take_backend(self, backend: LlamaBackend, left_out: Reason | None) -> None:
        """Set the target's context, and the reason why a drafter that needs another one is left out."""
        self.backend, self.left_out = backend, left_out or self.left_out
        self._closers.append(backend.close)

    def close(self) -> None:
        """Free contexts before the models that they use; may be called twice."""
        self._free()

    def _free(self) -> None:
        while self._closers:
            self._closers.pop()()


class Reached(NamedTuple):
    """The workers that responded, and the error of another one."""

    workers: tuple[str, ...] = ()
    missing: WorkerError | None = None


def with_share(reading: Reading, share: float) -> Reading:
    """Return the reading with only that share of the memory that devices report as free."""
    pools = (replace(pool, free=int(share * pool.free)) if pool.is_device else pool for pool in reading.pools)
    return replace(reading, pools=tuple(pools))


def reach(addresses: Sequence[str], timeout: float, should_continue: Callable[[], bool]) -> Reached:
    """Return the workers that respond within `timeout` seconds, and the error of one that does not.

    Raises WorkerError for a missing worker if `timeout` is 0, SettingsError without RPC, and KeyboardInterrupt if
    `should_continue` returns False.
    """
    rpc.require()
    deadline = time.monotonic() + timeout
    found: dict[str, RpcWorker | None] = {address: None for address in addresses if rpc.is_held(address)}
    while True:
        missing = ask_all([address for address in addresses if address not in found], found)
        if missing is None or time.monotonic() >= deadline:
            break
        if not should_continue():
            raise KeyboardInterrupt
        time.sleep(POLL_SECONDS)
    if missing and not timeout:
        raise missing
    for worker in filter(None, found.values()):
        rpc.register(worker)
    return Reached(tuple(address for address in addresses if address in found), missing)


def ask_all(addresses: Sequence[str], found: dict[str, RpcWorker | None]) -> WorkerError | None:
    """Add the workers that respond to `found`; return the error of the first that does not."""
    missing: WorkerError | None = None
    for address in addresses:
        try:
            found[address] = ask(address)
        except WorkerError as error:
            missing = missing or error
    return missing
