"""The hidden states that a context passes to a head for drafting. Must not know the listener.

The functions of llama.cpp with which a context exposes them are C++, and their header allows breaking changes:
private_llama.py knows their names in a library.
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
from runtime.core.draft import Tokens
from runtime.core.errors import ModelError
from runtime.models.heads import STATES

Rows = NDArray[np.float32]  # [rows, width]

NAMES = "show_layer", "layer", "show_hidden", "hidden"
N_VIEWS = 256  # cached views of the library's buffers, which seldom move


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


Listener = Callable[[Tokens, int, Rows], None]  # (a conversation's tokens, position of the first row, states)


class ShownStates:
    """Passes hidden states, `width` wide per layer, to a listener if there is one."""

    def __init__(self, handle: Any, width: int) -> None:
        self._handle, self._width = handle, width
        self._layers: tuple[int, ...] | None = None  # whose inputs are passed on
        self.listener: Listener | None = None
        self._n_unheard = 0  # next passes whose states are not passed on
        self.shows_outputs = False  # passes on what the output matrix reads, of passes with logits for all rows
        self._keeps_outputs = False  # the library does so in the next pass

    def show(self, layers: tuple[int, ...], listener: Listener) -> None:
        """Pass the inputs of these layers, side by side, to the listener for every row decoded from now on.

        Without layers, it receives the last hidden states. The model's graph must name the inputs.
        """
        if self._layers is None:
            for layer in layers:
                show_layer(self._handle, layer)
            if not layers:
                show_hidden(self._handle, masked=False)
        self._layers, self.listener = layers, listener
        self._n_unheard = 0

    def show_outputs(self, listener: Listener) -> None:
        """Pass the last hidden states, after the final norm, to the listener from now on.

        The library can keep them only in passes with logits for all rows, which are those over the last token and a
        draft. Others, such as prefill, are not passed on.
        """
        self.shows_outputs, self.listener, self._n_unheard = True, listener, 0

    def prepare(self, batch: lib.llama_batch, n_rows: int) -> None:
        """Tell the library whether to keep the last hidden states of this batch, of at most `n_rows` rows with logits.

        To be called where `shows_outputs`. The library ends the process if it is to keep them and a row has no logits.
        """
        n = batch.n_tokens
        keeps = self.listener is not None and not self._n_unheard and n <= n_rows and all(batch.logits[:n])
        if keeps != self._keeps_outputs:
            lib.llama_set_embeddings(self._handle, keeps)
            self._keeps_outputs = keeps

    def rest(self, n_passes: int) -> None:
        """Pass on no states of the next `n_passes`."""
        self._n_unheard = n_passes

    def remove_listener(self) -> None:
        """Remove the listener. The context still keeps states: another thread may set the listener during a pass."""
        self.listener = None

    def pass_on(self, tokens: Tokens, start: int, at: int) -> None:
        """Pass on the last batch's rows from `at` on: those of `tokens` from position `start` on."""
        listener, layers = self.listener, self._layers
        if listener is None or (layers is None and not self.shows_outputs):
            return
        if self._n_unheard:
            self._n_unheard -= 1
            return
        n = len(tokens) - start
        skipped, end = max(0, n - STATES), at + n
        if layers is None:
            if self._keeps_outputs:
                listener(tokens, start, output_rows(self._handle, end, self._width)[at:].copy())
            return
        rows = [layer_rows(self._handle, layer, end, self._width) for layer in layers]
        rows = rows or [hidden_rows(self._handle, end, self._width)]
        listener(tokens, start + skipped, np.concatenate([each[at + skipped :] for each in rows], axis=1))
