"""The engines that a benchmark asks: one per way, as many open at once as memory holds.

Knows no prompts and no results.

One engine per way, because a controller learns from what it sees: ways that shared one would teach each other, and what
adaptive decoding had learned from drafts that were forced would not be what it learns by itself. The model files are
mapped, so a further engine usually costs no more than its caches; but repacked weights, and weights on a GPU, are
copies, so each engine is counted with its whole files. What does not fit by that count is opened for its turn and
closed after it.
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

SHARE = 0.5  # of the memory that is free now
CACHES = 32 * 2**20  # bytes of contexts and buffers that even a small model takes


class Engines:
    """Opens engines and closes them."""

    def __init__(self, pair: Pair, options: Options, ways: Sequence[Way], go_on: Callable[[], bool]) -> None:
        self.pair, self._options, self._go_on = pair, options, go_on
        n_fit = int(SHARE * psutil.virtual_memory().available / engine_bytes(pair))
        self.all_fit = len(ways) <= n_fit
        self._ways_kept = ways if self.all_fit else ways[: max(0, n_fit - 1)]  # one place is for those that come and go
        self._kept: dict[Way, Engine] = {}
        self.seconds = 0.0  # spent on loading

    def _open(self, way: Way) -> Engine:
        """Raises KeyboardInterrupt when it is not to go on."""
        began, options = time.perf_counter(), replace(self._options, drafters=way.drafters, fixed_k=way.fixed_k)
        engine = LoadedEngine(self.pair, options, lambda what, share: self._go_on())
        self.seconds += time.perf_counter() - began
        return engine

    @contextmanager
    def lent(self, way: Way) -> Iterator[Engine]:
        """The engine of that way, for as long as the block lasts."""
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
    """What an engine takes at most: the files with a tenth for its caches, and what is needed at least.

    Missing files are the loader's to report.
    """
    files = [path for path in (pair.target, pair.draft) if path is not None and path.is_file()]
    return int(1.1 * sum(path.stat().st_size for path in files)) + CACHES
