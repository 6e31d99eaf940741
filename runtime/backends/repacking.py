"""Weights in llama.cpp's repacked layout on builds with AMX, where the library would choose AMX's own.

AMX kernels crash where a compiler left out their tile setup (llama.cpp's issue 20824), which cannot be detected
beforehand. So AMX's buffers are switched off there, and with them the repacked ones, in which K-quants decode a third
faster. The tensors that repacked buffers support are put into them by name.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from runtime.backends.private_llama import Override, symbol
from runtime.models.facts import is_repackable
from runtime.models.header import TensorInfo

LAYER = re.compile(r"blk\.(\d+)\.")


def buffer_type() -> int | None:
    """Return the library's buffer type for repacked weights; None where this build does not export it."""
    get = symbol("repacked")
    return int(get() or 0) or None if get else None


def overrides(tensors: Iterable[TensorInfo]) -> Any:
    """Return `tensor_buft_overrides`, to be kept until the model is loaded; None where nothing can be repacked."""
    kind, named = buffer_type(), patterns(tensors)
    if kind is None or not named:
        return None
    return (Override * (len(named) + 1))(*(Override(pattern.encode(), kind) for pattern in named))


def patterns(tensors: Iterable[TensorInfo]) -> list[str]:
    """Return regular expressions for repackable tensors: few, because the library compiles each for every tensor."""
    layers: dict[str, list[str]] = defaultdict(list)  # layer numbers by name; none for tensors outside of layers
    for tensor in filter(is_repackable, tensors):
        block = LAYER.match(tensor.name)
        layers[tensor.name[block.end() :] if block else tensor.name] += [block[1]] if block else []
    return [
        (rf"^blk\.({'|'.join(numbers)})\." if numbers else "^") + re.escape(name) + "$"
        for name, numbers in layers.items()
    ]
