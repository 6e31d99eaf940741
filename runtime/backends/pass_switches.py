"""Switches of a context's passes: a flag that stops a running one, and the kernels of attention.

Passes of one row are made to round as rows of wider passes do where keys and values are both F16 on a processor.
There ggml's flash attention (ggml-cpu/ops.cpp) has three kernels: for one row it divides the cells among the threads
and adds up the parts, 2 to 63 rows are computed one by one, and 64 and more in blocks of rows and cells, so that the
result also depends on where in the cache they are. Its reference implementation computes every row as the second kernel
does; a single row takes as long with it.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterable
from typing import Any

import llama_cpp.llama_cpp as lib

from runtime.backends import library
from runtime.backends.private_llama import ADDRESS, BOOL, ggml, scheduler_of
from runtime.models.cache_layout import HALVES, CacheTypes

# The library calls this after each node of the graph. A Python function would wait for the interpreter's lock hundreds
# of times a pass, so it is C's strlen: the length of a one-letter text counts as true, that of an empty one as false.
strlen = (ctypes.cdll.msvcrt if sys.platform == "win32" else ctypes.CDLL(None)).strlen
has_text = ctypes.cast(strlen, lib.ggml_abort_callback)


class StopFlag:
    """The flag of one context: while it is up, every pass ends immediately with code STOPPED."""

    STOPPED = 2

    def __init__(self, context: object) -> None:
        self._text = ctypes.create_string_buffer(2)
        lib.llama_set_abort_callback(context, has_text, ctypes.cast(self._text, ctypes.c_void_p))

    def put(self, is_up: bool) -> None:
        """Raise or lower the flag."""
        self._text[0] = b"x" if is_up else b"\0"


BLOCK = 64  # rows of a pass from which attention is computed in blocks (ggml_fa_tile_config::Q)
NARROW = 48  # rows of a pass that still computes them one by one: whole tiles of the matrix kernels
NAME = b"ggml_backend_cpu_set_use_ref"
Switch = Callable[[int, bool], None]  # (processor's backend, whether it uses the reference implementation)


class Attention:
    """The attention of one context's passes.

    `has_blocks`: whether wide passes compute it in blocks. `has_parts`: whether those of one row add up parts, because
    this build has no switch for it.
    """

    def __init__(self, context: Any, types: CacheTypes) -> None:
        self.has_blocks = types == HALVES and not library.has_gpu()
        self._switches = dict(switches(context)) if self.has_blocks else {}
        self.has_parts = self.has_blocks and not self._switches
        self._is_single = False

    def prepare(self, n_rows: int) -> None:
        """Prepare a pass over `n_rows` rows."""
        if not self._switches or (n_rows == 1) is self._is_single:
            return
        self._is_single = n_rows == 1
        for backend, switch in self._switches.items():
            switch(backend, self._is_single)


def switches(context: Any) -> Iterable[tuple[int, Switch]]:
    """Yield the processors' backends of a context with their switches; nothing where this build has none."""
    scheduler = scheduler_of(context)
    n = 0 if scheduler is None else ggml.ggml_backend_sched_get_n_backends(scheduler)
    for backend in [ggml.ggml_backend_sched_get_backend(scheduler, i) for i in range(n)]:
        device = ggml.ggml_backend_get_device(backend)
        if device and library.is_processor(device):
            found = ggml.ggml_backend_reg_get_proc_address(ggml.ggml_backend_dev_backend_reg(device), NAME)
            if found:
                yield backend, ctypes.CFUNCTYPE(None, ADDRESS, BOOL)(found)
