"""llama.cpp's staging functions, by which a context shows hidden states.

They are C++, and their header allows breaking changes: under which names a library has them is private_llama.py's.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.backends.private_llama import symbol
from runtime.core.errors import ModelError

Rows = NDArray[np.float32]  # [rows, width]

NAMES = "show_layer", "layer", "show_hidden", "hidden"
N_VIEWS = 64  # of the library's buffers, that are kept: they seldom move


@cache
def functions() -> dict[str, Callable[..., Any]]:
    """The functions by their names here. Raises ModelError where the library has not all of them."""
    found = {name: function for name in NAMES if (function := symbol(name))}
    if len(found) < len(NAMES):
        raise ModelError("this llama.cpp build does not show hidden states")
    return found


def show_layer(context: Any, layer: int) -> None:
    """From now on the context keeps the inputs of that layer. The graph of the model must name them, or llama.cpp ends
    the process at the next pass.
    """
    functions()["show_layer"](context, layer, True)


def layer_rows(context: Any, layer: int, n: int, width: int) -> Rows:
    """The layer's inputs [n, width] of the last pass, in the order of its batch: the library's own, until the next."""
    return rows_at(functions()["layer"](context, layer), n, width)


def show_hidden(context: Any, masked: bool) -> None:
    """From now on the context keeps the last hidden states of all rows, or of those that logits are asked of."""
    functions()["show_hidden"](context, True, masked)


def hidden_rows(context: Any, n: int, width: int) -> Rows:
    """The last hidden states [n, width] of the last pass or encoding: the library's own, until the next."""
    return rows_at(functions()["hidden"](context), n, width)


@lru_cache(maxsize=N_VIEWS)
def rows_at(address: int, n: int, width: int) -> Rows:
    """What stands there. A view takes longer to make than the states of a row to be copied."""
    return np.ctypeslib.as_array((ctypes.c_float * (n * width)).from_address(address)).reshape(n, width)
