"""Reads rows of a matrix in a mapped GGUF file as floats, whatever their type: the library converts them."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.backends.private_llama import type_traits
from runtime.core.errors import DraftError
from runtime.models.gguf_types import TYPES
from runtime.models.header import TensorInfo, read_header
from runtime.models.shards import shard_names


class FileRows:
    """A matrix [n, width], or a vector as one row, that stays in its file. Raises DraftError."""

    def __init__(self, path: Path, tensor: TensorInfo, data_start: int) -> None:
        self.n, self.width = tensor.n_values // tensor.shape[0], tensor.shape[0]
        self._rows = np.memmap(path, np.uint8, "r", data_start + tensor.offset, (self.n, tensor.n_bytes // self.n))
        self._to_float = converter(tensor.kind)

    def floats(self, rows: Any) -> NDArray[np.float32]:
        """Return these rows, given as ids or a slice: [n, width]."""
        raw = np.ascontiguousarray(self._rows[rows])
        if self._to_float is None:
            return raw.view(np.float32)
        found = np.empty((len(raw), self.width), dtype=np.float32)
        self._to_float(raw.ctypes.data, found.ctypes.data, found.size)
        return found


def converter(kind: str) -> Any:
    """Return the library's function that converts values of that type to floats; None for floats. Raises DraftError."""
    number, block, size = next((number, *sizes) for number, (name, *sizes) in TYPES.items() if name == kind)
    traits = type_traits(number)
    if (traits.block, traits.size) != (block, size):
        raise DraftError("this version of llama.cpp lays out its types differently")
    address = traits.to_float
    if not address and kind != "F32":
        raise DraftError(f"this version of llama.cpp cannot convert values of the type {kind}")
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(address) if address else None


def find_rows(path: Path, *names: str) -> FileRows | None:
    """Return the first of these matrices that the model of one or more shards has. Raises DraftError, ModelError."""
    headers = {shard: read_header(shard) for shard in map(path.with_name, shard_names(path.name))}
    for name in names:
        for shard, header in headers.items():
            for tensor in header.tensors:
                if tensor.name == name:
                    return FileRows(shard, tensor, header.data_start)
    return None
