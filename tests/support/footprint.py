"""By how much a process grows when it holds a model, beside what is estimated from the model's header."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import llama_cpp.llama_cpp as lib
import numpy as np
import psutil

from runtime.backends.llama import LlamaBackend
from runtime.backends.model import GGML_TYPES, LlamaModel
from runtime.loading.footprint import ContextSpec, Footprint, estimate
from runtime.models.cache_layout import HALVES, USUAL_CACHE, CacheTypes
from runtime.models.facts import ModelFacts
from runtime.models.header import read_header

CACHES = USUAL_CACHE, HALVES
N_CTX = 2048


class WithCache(LlamaBackend):
    """A context with a cache of chosen types."""

    types: CacheTypes = USUAL_CACHE

    def _params(self, n_ctx: int) -> lib.llama_context_params:
        params = super()._params(n_ctx)
        params.type_k, params.type_v = (GGML_TYPES[kind] for kind in self.types)
        return params


@dataclass(frozen=True, slots=True)
class Case:
    """A model file and how its context is made."""

    name: str
    path: Path
    context: ContextSpec

    def footprint(self) -> Footprint:
        """By its header."""
        return estimate(ModelFacts(read_header(self.path)), self.context)

    def estimated(self) -> int:
        """Bytes that the process holds as long as nobody wants memory: weights that were copied, twice."""
        found = self.footprint()
        return found.needed + found.repacked


def measured(tiny: Path, case: Case) -> int:
    """Bytes by which this process grows; what the library itself takes is paid for by a tiny model before."""
    loaded(tiny, ContextSpec(N_CTX))
    before = psutil.Process().memory_info().rss
    return loaded(case.path, case.context) - before


def loaded(path: Path, context: ContextSpec) -> int:
    """Resident bytes after a full batch."""
    model = LlamaModel(path)
    WithCache.types = context.cache
    backend = WithCache(model, context.n_ctx, context.n_rows, context.n_batch)
    backend.forward(np.arange(context.n_batch, dtype=np.int32) % backend.n_vocab)
    resident = int(psutil.Process().memory_info().rss)
    backend.close()
    model.close()
    return resident
