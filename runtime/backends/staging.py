"""llama.cpp's staging functions, with which a context exposes hidden states.

They are C++, and their header allows breaking changes: private_llama.py knows their names in a library.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import llama_cpp.llama_cpp as lib
import numpy as np
from numpy.typing import NDArray

from runtime.backends.private_llama import symbol
from runtime.core.errors import ModelError

Rows = NDArray[np.float32]  # [rows, width]

NAMES = "show_layer", "layer", "show_hidden", "hidden"
N_VIEWS = 64  # cached views of the library's buffers, which seldom move


@cache
def functions() -> dict[str, Callable[..., Any]]:
    """Return the functions by their names here. Raises ModelError where the library lacks one."""
    found = {name: function for name in NAMES if (function := symbol(name))}
    if len(found) < len(NAMES):
        raise ModelError("this llama.cpp build does not show hidden states")
    return found


def show_layer(context: Any, layer: int) -> None:
    """Make the context keep the inputs of that layer from now on.

    The model's graph must name them, or llama.cpp ends the process at the next pass.
    """
    functions()["show_layer"](context, layer, True)


def layer_rows(context: Any, layer: int, n: int, width: int) -> Rows:
    """Return the layer's inputs [n, width] in the last pass, in batch order: a view, valid until the next pass."""
    return rows_at(functions()["layer"](context, layer), n, width)


def show_hidden(context: Any, masked: bool) -> None:
    """Make the context keep the last hidden states of all rows from now on, or if `masked` of the rows with logits."""
    functions()["show_hidden"](context, True, masked)


def hidden_rows(context: Any, n: int, width: int) -> Rows:
    """Return the last hidden states [n, width] of the last pass or encoding: a view, valid until the next one."""
    return rows_at(functions()["hidden"](context), n, width)


def output_rows(context: Any, n: int, width: int) -> Rows:
    """Return what the output matrix has read in the last pass [n, width]: a view, valid until the next one."""
    return rows_at(ctypes.addressof(lib.llama_get_embeddings(context).contents), n, width)


@lru_cache(maxsize=N_VIEWS)
def rows_at(address: int, n: int, width: int) -> Rows:
    """Return a cached view of a buffer: creating a view takes longer than copying the states of a row."""
    return np.ctypeslib.as_array((ctypes.c_float * (n * width)).from_address(address)).reshape(n, width)
