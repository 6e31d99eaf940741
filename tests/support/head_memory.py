"""What a head takes in memory: the buffers that the library says it makes for one, its buffers of rows, and the arrays
of states beside them.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as lib
import numpy as np

from runtime.backends import library
from runtime.backends.contexts import open_backend
from runtime.backends.heads.head import HeadBackend
from runtime.backends.heads.llama_heads import MtpBackend
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.core.draft import Tokens
from runtime.loading.footprint import ContextSpec, head_bytes
from runtime.loading.heads import head_context
from runtime.loading.options import Options
from runtime.models.cache_layout import cache_types
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.models.heads import FEW_ROWS

MIB = 2**20
SIZE = re.compile(r"(model|KV|compute) buffer size = +([\d.]+) MiB")
Sizes = list[tuple[str, float]]  # of buffers, in the order in which they were made: what for, bytes


@dataclass(frozen=True, slots=True)
class Pair:
    """A target and a head beside it; without one, layers of the target's own file draft."""

    target: Path
    head: Path | None = None
    slots: int = 1
    n_ctx: int = 4096
    n_batch: int = 512
    max_k: int = 12

    def estimated(self) -> int:
        """Bytes that the head needs, by the headers."""
        target = facts_of(self.target)
        spec = ContextSpec(self.n_ctx, cache_types(target), self.max_k + 1, self.n_batch, n_seats=self.slots)
        return head_bytes(facts_of(self.head) if self.head else target, target, spec)

    def allocated(self) -> int:
        """Bytes that are there for it after a prompt of a whole batch, and a draft."""
        with ExitStack() as stack, logged() as sizes:
            model = stack.enter_context(closing(LlamaModel(self.target)))
            without = total(sizes, "model")
            sizes.clear()
            target = stack.enter_context(closing(LlamaModel(self.target, with_mtp=True))) if not self.head else model
            backend = stack.enter_context(
                closing(open_backend(target, self.n_ctx, self.max_k + 1, self.n_batch, n_seats=self.slots))
            )
            weights = 0.0 if self.head else total(sizes, "model") - without
            backend.forward(text(backend, self.n_batch, 0))
            before, graph = rows_held(backend.handle), total(sizes, "compute")
            sizes.clear()
            head = stack.enter_context(closing(self._with_state(backend, stack)))
            of_head = total(sizes, "compute")
            for context in (text(backend, self.n_batch, 7), text(backend, self.n_batch + FEW_ROWS, 7)):
                backend.forward(context)
                head.forward(np.append(context, 5).astype(np.int32))
            grown = max(0.0, total(sizes, "compute") - of_head - graph)  # of the target's, where it was made anew
            rows = rows_held(head.handle) + rows_held(backend.handle) - before
            states = sum(trail.waiting.n_bytes for trail in head._trails)
            found = total(sizes, "model") + total(sizes, "KV") + of_head
            return round(weights + found + grown + rows + states)

    def _with_state(self, backend: LlamaBackend, stack: ExitStack) -> HeadBackend:
        """The head's context, which listens to the target's."""
        if self.head is None:
            return MtpBackend(backend, self.slots, self.max_k)
        head = stack.enter_context(closing(LlamaModel(self.head, is_head=True)))
        return head_context(backend, head, facts_of(self.head), Options(slots=self.slots, max_k=self.max_k))


@contextmanager
def logged() -> Iterator[Sizes]:
    """Gathers what the library says of its buffers."""
    found: Sizes = []

    def note(level: int, text: bytes, data: Any) -> None:
        found.extend((what, float(size) * MIB) for what, size in SIZE.findall(text.decode("utf8", "replace")))

    library.start()  # which has the library's words go elsewhere
    log = lib.llama_log_callback(note)
    lib.llama_log_set(log, None)
    try:
        yield found
    finally:
        lib.llama_log_set(library.on_log, None)


def total(sizes: Sizes, kind: str) -> float:
    """Bytes of the buffers of that kind."""
    return sum(size for what, size in sizes if what == kind)


def rows_held(context: Any) -> int:
    """Bytes of the buffer that a context's logits and states are copied to, which begins with the logits."""
    size_of = ctypes.CDLL(None).malloc_usable_size
    size_of.restype, size_of.argtypes = ctypes.c_size_t, [ctypes.c_void_p]
    return int(size_of(ctypes.cast(lib.llama_get_logits(context), ctypes.c_void_p)))


def text(backend: LlamaBackend, n: int, first: int) -> Tokens:
    """So many tokens."""
    return ((np.arange(n) + first) % backend.n_vocab).astype(np.int32)


def facts_of(path: Path) -> ModelFacts:
    """What a file's header says."""
    return ModelFacts(read_model_header(path))
