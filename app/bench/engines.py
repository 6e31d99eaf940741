"""The engines of a benchmark: one per configuration, as many open together as memory allows.

Knows no prompts and no results.

A controller learns from its measurements, so each configuration has its own engine. A shared engine would give adaptive
decoding what was learned from forced drafts. The model files are mapped, so a further engine usually costs only its
caches. Repacked weights and weights on a GPU are copies, so each engine is counted with its whole files. Engines that
do not fit by that count are opened when needed and closed afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType

import psutil

from app.bench.plan import Way
from runtime.engine import Engine, Options
from runtime.engine.loaded import LoadedEngine
from runtime.models.registry import Pair

SHARE = 0.5  # of the free memory
CACHES = 32 * 2**20  # bytes of contexts and buffers, also for a small model


class Engines:
    """Opens and closes engines."""

    def __init__(self, pair: Pair, options: Options, ways: Sequence[Way], should_continue: Callable[[], bool]) -> None:
        self.pair, self._options, self._should_continue = pair, options, should_continue
        n_fit = int(SHARE * psutil.virtual_memory().available / engine_bytes(pair))
        self.all_fit = len(ways) <= n_fit
        self._ways_kept = ways if self.all_fit else ways[: max(0, n_fit - 1)]  # one place is for the others
        self._kept: dict[Way, Engine] = {}
        self.seconds = 0.0  # time spent on loading

    def _open(self, way: Way) -> Engine:
        """Load an engine. Raises KeyboardInterrupt if the benchmark is to stop."""
        began, options = time.perf_counter(), replace(self._options, drafters=way.drafters, fixed_k=way.fixed_k)
        engine = LoadedEngine(self.pair, options, lambda what, share: self._should_continue())
        self.seconds += time.perf_counter() - began
        return engine

    @contextmanager
    def lent(self, way: Way) -> Iterator[Engine]:
        """Yield the engine of a configuration for the block."""
        if way in self._kept:
            yield self._kept[way]
            return
        engine = self._open(way)
        if way in self._ways_kept:
            self._kept[way] = engine
            yield engine
            return
        try:
            yield engine
        finally:
            engine.close()

    def __enter__(self) -> Engines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._kept:
            self._kept.popitem()[1].close()


def engine_bytes(pair: Pair) -> int:
    """Return an upper estimate of an engine's memory: its files with a tenth for caches, plus a minimum.

    Missing files are left to the loader to report.
    """
    files = [path for path in (pair.target, pair.draft) if path is not None and path.is_file()]
    return int(1.1 * sum(path.stat().st_size for path in files)) + CACHES
