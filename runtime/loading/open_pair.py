"""A pair with loaded models and open contexts, planned to fit into free memory.

Knows files, devices and backends; measures nothing and decodes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from runtime.backends import library, rpc
from runtime.backends.library import devices
from runtime.backends.llama import LlamaBackend
from runtime.backends.reloadable import ReloadableBackend
from runtime.backends.workers import RpcWorker, WorkerError, ask
from runtime.core.backend import OnProgress
from runtime.core.errors import NoMemoryError
from runtime.drafters.registry import Needs, described, needing
from runtime.loading import layout
from runtime.loading.cache_types import fastest
from runtime.loading.draft import WantedDraft
from runtime.loading.eyes import n_needed, open_eyes
from runtime.loading.heads import HeadSource
from runtime.loading.opening import load, open_target
from runtime.loading.options import Options
from runtime.loading.planning import HEADS, MODEL, MTP, drafts_by, n_snapshots, pair_spec, plan_with_halves, plan_within
from runtime.memory.fit import DEFAULT_CONTEXT
from runtime.memory.footprint import ALL_LAYERS
from runtime.memory.pressure import Reading
from runtime.memory.system import MemoryReader
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
        self._workers: tuple[str, ...] = ()  # those that responded
        self._missing: WorkerError | None = None  # error of another one
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
        self._workers, self._missing = reach(asked, self.options.worker_timeout, lambda: on_progress("target", 0.0))
        self._closers.append(rpc.hold(self._workers))
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
                self._plan(share)
                return self._open(on_progress, head)
            except NoMemoryError:
                self._free()
                if not library.has_gpu() or self.options.is_whole:
                    raise
                self.options, self.names, self.off = asked
        library.leave_gpus()
        self._workers = ()
        self._plan()
        self.shortened = "the model runs on the processor only, because the GPU has less memory than it reports"
        return self._open(on_progress, head)

    def _plan(self, share: float = 1.0) -> None:
        """Plan what fits into memory, if devices have `share` of what they report as free. Raises NoMemoryError."""
        self.reader = MemoryReader(devices if library.has_gpu() or self._workers else tuple)
        self.spec = pair_spec(self.pair, self.options, bool((HEADS | {MODEL}) & {*self.names}))
        self._drafts_by = drafts_by(self.pair, self.spec)
        if self.spec and not {MODEL, self._drafts_by} & {*self.names}:
            self.spec = replace(self.spec, draft=None)
        try:
            self.plan = plan_within(self.spec, with_share(self.reader(), share), self.options, self.pair.target.name)
        except NoMemoryError as error:
            raise NoMemoryError(f"{self._missing} {error}") if self._missing else error from None
        if self._missing:
            self.shortened = f"{str(self._missing).partition('. ')[0]}, so the model is run without it"

    def _open(self, on_progress: OnProgress, head: HeadSource | None) -> None:
        """Open the target and its context, which limits the length of drafts."""
        n_gpu_layers = self.plan.n_gpu_layers if self.plan else ALL_LAYERS
        facts = self.spec.target if self.spec else None
        has_draft = self.plan is None or self.plan.with_draft
        wanted = WantedDraft(self.pair, self.spec, self.plan, self._drafts_by, self.names, head)
        halves = plan_with_halves(self.spec, self.reader().without(self.options.reserved), self.options)
        refused = wanted.try_out(on_progress)
        self.target = load(
            self.pair.target,
            "target",
            on_progress,
            self.options.exact,
            n_gpu_layers,
            facts=facts,
            with_mtp=self._drafts_by == MTP and not self.pair.draft and has_draft and not refused,
            workers=self._workers,
        )
        self._closers.append(self.target.close)
        self.target.load_adapters(self.pair.lora)
        open_eyes(self.target, self.pair, self.options, on_progress)
        if halves and fastest(self.target, halves[1].n_ctx) == HALVES:
            self.spec, self.plan, self.target.cache_types = *halves, HALVES
            wanted = replace(wanted, spec=self.spec, plan=self.plan)
        asked = self.options.n_ctx or self.pair.context
        n_ctx = min(self.plan.n_ctx if self.plan else asked or DEFAULT_CONTEXT, self.target.n_ctx_train)
        if n_ctx == self.target.n_ctx_train < (self.options.n_ctx or 0):
            why = "the model was trained on no more"
            self.shortened = f"the context holds {n_ctx} tokens, not {self.options.n_ctx}: {why}"
        most = n_snapshots(self.options) if self.target.is_recurrent else self.options.max_k
        self.options = replace(self.options, n_ctx=n_ctx, max_k=min(most, n_ctx // 2 - 1))
        self._open_target()
        self._wanted = replace(wanted, names=self.names, refused=refused)  # it may lack some

    def _open_draft(self, on_progress: OnProgress) -> None:
        """Open the draft, if there is one."""
        self.draft, lacking = self._wanted.open(self.backend, self.options, on_progress)
        self.left_out = lacking or self.left_out
        if self.draft is not None:
            self._closers.append(self.draft.close)

    def _open_target(self) -> None:
        """Open the target's context, and drop all drafters if it cannot rewind, before a draft model takes memory."""
        is_short = self.plan is not None and self.plan.is_frugal
        is_frugal = is_short or (self.target.is_recurrent and not self.names)
        exits_early = bool(needing(self.names, Needs.EARLY_EXIT))
        self._take_backend(*open_target(self.target, self.pair, self.options, exits_early, is_frugal))
        if self.names and not self.backend.n_rewindable:
            why = Reason("architecture", "this architecture cannot drop rejected tokens")
            self.names, self.off = (), Reason("memory", self.plan.text) if is_short and self.plan else why

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


def with_share(reading: Reading, share: float) -> Reading:
    """Return the reading with only that share of the memory that devices report as free."""
    pools = (replace(pool, free=int(share * pool.free)) if pool.is_device else pool for pool in reading.pools)
    return replace(reading, pools=tuple(pools))


def reach(
    addresses: Sequence[str], timeout: float, should_continue: Callable[[], bool]
) -> tuple[tuple[str, ...], WorkerError | None]:
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
    return tuple(address for address in addresses if address in found), missing


def ask_all(addresses: Sequence[str], found: dict[str, RpcWorker | None]) -> WorkerError | None:
    """Add the workers that respond to `found`; return the error of the first that does not."""
    missing: WorkerError | None = None
    for address in addresses:
        try:
            found[address] = ask(address)
        except WorkerError as error:
            missing = missing or error
    return missing
