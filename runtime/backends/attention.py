"""Makes passes of one row round as rows of wider passes do where keys and values are both F16 on a processor.

There ggml's flash attention (ggml-cpu/ops.cpp) has three kernels: for one row it divides the cells among the threads
and adds up the parts, 2 to 63 rows are computed one by one, and 64 and more in blocks. Its reference implementation
computes every row as the second kernel does; a single row takes as long with it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from runtime.backends import library
from runtime.backends.nodes import scheduler_of
from runtime.backends.private_llama import ADDRESS, BOOL, ggml

BLOCK = 64  # rows of a pass from which attention is computed in blocks (ggml_fa_tile_config::Q)
NAME = b"ggml_backend_cpu_set_use_ref"
Switch = Callable[[int, bool], None]  # (processor's backend, whether it uses the reference implementation)


class RowAttention:
    """The attention of one context's passes."""

    def __init__(self, processors: dict[int, Switch]) -> None:
        self._processors, self._is_single = processors, False

    def prepare(self, n_rows: int) -> None:
        """Prepare a pass over `n_rows` rows."""
        if (is_single := n_rows == 1) is self._is_single:
            return
        self._is_single = is_single
        for backend, switch in self._processors.items():
            switch(backend, is_single)


def row_attention(context: Any) -> RowAttention | None:
    """Return the attention of a context, or None where this build has no such switch."""
    scheduler = scheduler_of(context)
    if scheduler is None:
        return None
    n = ggml.ggml_backend_sched_get_n_backends(scheduler)
    backends = [ggml.ggml_backend_sched_get_backend(scheduler, i) for i in range(n)]
    switches = {backend: switch for backend in backends if (switch := _switch_of(backend))}
    return RowAttention(switches) if switches else None


def _switch_of(backend: int) -> Switch | None:
    """Return the switch of a processor's backend; None of another one."""
    device = ggml.ggml_backend_get_device(backend)
    if not device or not library.is_processor(device):
        return None
    found = ggml.ggml_backend_reg_get_proc_address(ggml.ggml_backend_dev_backend_reg(device), NAME)
    return ctypes.CFUNCTYPE(None, ADDRESS, BOOL)(found) if found else None
