"""llama.cpp's staging functions, by which a context shows hidden states: bound here alone, by name.

They are C++, so a library exports them under the name that its compiler made: plain, Itanium's (Linux, macOS) or
MSVC's (Windows, not yet run by us). Their header allows breaking changes; what is here holds for the version that
pyproject.toml pins.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, NamedTuple

import llama_cpp.llama_cpp as lib
import numpy as np
from numpy.typing import NDArray

from runtime.core.errors import ModelError

Rows = NDArray[np.float32]  # [rows, width]

ADDRESS, IDS, CONTEXT, NUMBER = (
    ctypes.c_void_p, ctypes.POINTER(ctypes.c_int32), ctypes.c_void_p, ctypes.c_uint32,
)  # fmt: skip

N_VIEWS = 64  # of the library's buffers, that are kept: they seldom move


class Bound(NamedTuple):
    """A function's names by compiler, what it returns and what it takes."""

    plain: str
    itanium: str
    msvc: str
    result: Any
    takes: tuple[Any, ...]


FUNCTIONS = {
    "show_layer": Bound(
        "llama_set_embeddings_layer_inp",
        "_Z30llama_set_embeddings_layer_inpP13llama_contextjb",
        "?llama_set_embeddings_layer_inp@@YAXPEAUllama_context@@I_N@Z",
        None,
        (CONTEXT, NUMBER, ctypes.c_bool),
    ),
    "layer": Bound(
        "llama_get_embeddings_layer_inp",
        "_Z30llama_get_embeddings_layer_inpP13llama_contextj",
        "?llama_get_embeddings_layer_inp@@YAPEAMPEAUllama_context@@I@Z",
        ADDRESS,
        (CONTEXT, NUMBER),
    ),
    "show_hidden": Bound(
        "llama_set_embeddings_nextn",
        "_Z26llama_set_embeddings_nextnP13llama_contextbb",
        "?llama_set_embeddings_nextn@@YAXPEAUllama_context@@_N1@Z",
        None,
        (CONTEXT, ctypes.c_bool, ctypes.c_bool),
    ),
    "hidden": Bound(
        "llama_get_embeddings_nextn",
        "_Z26llama_get_embeddings_nextnP13llama_context",
        "?llama_get_embeddings_nextn@@YAPEAMPEAUllama_context@@@Z",
        ADDRESS,
        (CONTEXT,),
    ),
}


@cache
def functions() -> dict[str, Callable[..., Any]]:
    """The functions by their names here. Raises ModelError where the library has not all of them."""
    return {name: found(bound) for name, bound in FUNCTIONS.items()}


def found(bound: Bound) -> Callable[..., Any]:
    """That function of the library. Raises ModelError."""
    for name in (bound.plain, bound.itanium, bound.msvc):
        if function := getattr(lib._lib, name, None):
            function.restype, function.argtypes = bound.result, bound.takes
            return function  # type: ignore[no-any-return]
    raise ModelError("this llama.cpp build does not show hidden states")


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
