"""An embedding or a reranking model in memory: planned to fit, with the context that pools its outputs.

Knows files, devices and memory; knows no text.
"""

from __future__ import annotations

import time
from dataclasses import replace

from runtime.backends import library
from runtime.backends.model import LlamaModel
from runtime.backends.pooling import MAX_ROWS, Inputs, Pooler, Vectors
from runtime.core.backend import OnProgress
from runtime.core.errors import ModelError, NoMemoryError
from runtime.core.memory import MemoryReader
from runtime.loading.fit import FREE_SHARE, headroom_of
from runtime.loading.footprint import ALL_LAYERS, FLOAT, ContextSpec, compute_bytes
from runtime.loading.neighbours import Neighbours
from runtime.loading.opening import stoppable
from runtime.loading.options import Options
from runtime.loading.pass_timing import usual_threads
from runtime.loading.planning import pair_spec, plan_within
from runtime.models.cache_layout import HALVES, CacheSpec, cache_bytes
from runtime.models.facts import ModelFacts
from runtime.models.registry import Pair, with_files

LOOK = 0.5  # seconds between two readings of the load by others, whose counters move in coarse steps


class PooledModel:
    """A loaded embedding or reranking model. Raises ModelError."""

    def __init__(self, pair: Pair, options: Options, on_progress: OnProgress) -> None:
        if options.without_gpu:
            library.leave_gpus()
        self.pair, self._options = with_files(pair), options
        self._neighbours = Neighbours()
        self._reader = MemoryReader(library.devices if library.has_gpu() else tuple)
        self.target = self._loaded(on_progress)
        try:
            self.pooler = Pooler(self.target, self._longest())
        except BaseException:
            self.target.close()
            raise
        self._looked_at = 0.0  # when the load by others was read last
        self.pooler.set_threads(self._options.threads or usual_threads())

    def _loaded(self, on_progress: OnProgress) -> LlamaModel:
        """Load the model, on the processor alone if a GPU has too little memory. Raises ModelError."""
        short = replace(self._options, n_ctx=MAX_ROWS, drafters=())
        spec = pair_spec(self.pair, short, with_draft=False)
        self.facts = spec.target if spec else None
        if self.facts and self.facts.pooling.ranks and not has_classifier(self.facts):
            raise ModelError(
                f"{self.pair.target.name} is a reranking model without its classifier. Convert it again with a newer "
                "llama.cpp, or choose another file of this model."
            )
        while True:
            plan = plan_within(spec, self._reader(), short, self.pair.target.name)
            self.fit, self.n_needed = (plan.text, plan.n_bytes) if plan else ("", 0)
            try:
                return self._load(on_progress, plan.n_gpu_layers if plan else ALL_LAYERS)
            except NoMemoryError:
                if not library.has_gpu():
                    raise
                library.leave_gpus()
                self._reader = MemoryReader()

    def _load(self, on_progress: OnProgress, n_gpu_layers: int) -> LlamaModel:
        path, exact = self.pair.target, self._options.exact
        return stoppable(
            "target", on_progress, lambda report: LlamaModel(path, report, n_gpu_layers, exact, facts=self.facts)
        )

    def _longest(self) -> int:
        """Return the most tokens of a text: those that were requested, else as many as fit in a share of the memory; no
        more than the model was trained for.
        """
        n = self.target.n_ctx_train
        if asked := self._options.n_ctx or self.pair.context:
            return min(n, asked)
        free = headroom_of(self._reader(), self._options.memory)
        while free and self.facts and n > MAX_ROWS and self._needs(self.facts, n) > FREE_SHARE * free.free:
            n //= 2
        return n

    def _needs(self, facts: ModelFacts, n: int) -> int:
        """Return the bytes of a context for a text of `n` tokens."""
        rows = min(n, MAX_ROWS) if self.target.pooling.reads_last else n
        cells = cache_bytes(facts, CacheSpec(n, HALVES)) if self.target.pooling.reads_last else 0
        graph = compute_bytes(facts, ContextSpec(n, n_rows=0, n_batch=rows), n)
        return cells + graph + rows * (facts.n_vocab + self.target.n_embd) * FLOAT

    def pool(self, inputs: Inputs) -> Vectors:
        """See Pooler. Leaves the cores to other programs that use them."""
        self._choose_threads()
        return self.pooler.pool(inputs)

    def _choose_threads(self) -> None:
        """Use as many threads as there are cores that others do not keep busy: passes wait for the slowest thread."""
        now = time.perf_counter()
        if self._options.threads or now - self._looked_at < LOOK:
            return
        self._looked_at = now
        if (busy := self._neighbours.busy_cores()) is not None:
            self.pooler.set_threads(usual_threads(round(busy)))

    def close(self) -> None:
        """Free the context before the model that it uses; may be called twice."""
        self.pooler.close()
        self.target.close()


def has_classifier(facts: ModelFacts) -> bool:
    """Whether a file has the tensors that make a score."""
    return any(tensor.name.startswith("cls.") for tensor in facts.header.tensors)
