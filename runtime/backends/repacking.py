"""Weights in llama.cpp's repacked layout on builds with AMX, where the library would choose AMX's own.

Those kernels crash where a compiler left out their tile setup (llama.cpp's issue 20824), and nothing tells it
beforehand. So AMX's buffers are switched off there, and with them go the repacked ones, in which K-quants decode a
third faster: the tensors that these support are put into them by name.
"""

from __future__ import annotations

import ctypes
import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import llama_cpp.llama_cpp as lib

from runtime.models.facts import is_repackable
from runtime.models.header import TensorInfo

# C++ symbols of a function without arguments: as GCC and Clang spell it, and Microsoft's compiler
SYMBOLS = (
    "_Z35ggml_backend_cpu_repack_buffer_typev",
    "?ggml_backend_cpu_repack_buffer_type@@YAPEAUggml_backend_buffer_type@@XZ",
)

LAYER = re.compile(r"blk\.(\d+)\.")


class Override(ctypes.Structure):
    """llama.h's llama_model_tensor_buft_override."""

    _fields_ = (("pattern", ctypes.c_char_p), ("buffer_type", ctypes.c_void_p))


def buffer_type() -> int | None:
    """The library's buffer type for repacked weights; None where this build does not show it."""
    for symbol in SYMBOLS:
        get = getattr(lib._lib, symbol, None)
        if get is not None:
            get.restype = ctypes.c_void_p
            return int(get() or 0) or None
    return None


def overrides(tensors: Iterable[TensorInfo]) -> Any:
    """What `tensor_buft_overrides` is set to, kept until the model is loaded; None where nothing can be repacked."""
    kind, named = buffer_type(), patterns(tensors)
    if kind is None or not named:
        return None
    return (Override * (len(named) + 1))(*(Override(pattern.encode(), kind) for pattern in named))


def patterns(tensors: Iterable[TensorInfo]) -> list[str]:
    """Regular expressions for what can be repacked: few, because the library compiles each anew for each tensor."""
    layers: dict[str, list[str]] = defaultdict(list)  # numbers by name; of what belongs to no layer none
    for tensor in filter(is_repackable, tensors):
        block = LAYER.match(tensor.name)
        layers[tensor.name[block.end() :] if block else tensor.name] += [block[1]] if block else []
    return [
        (rf"^blk\.({'|'.join(numbers)})\." if numbers else "^") + re.escape(name) + "$"
        for name, numbers in layers.items()
    ]
