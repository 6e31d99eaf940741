"""The hidden states that a context passes to a head for drafting. Must not know the listener."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llama_cpp.llama_cpp as lib
import numpy as np

from runtime.backends import staging
from runtime.backends.staging import Rows
from runtime.core.draft import Tokens
from runtime.models.heads import STATES

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
                staging.show_layer(self._handle, layer)
            if not layers:
                staging.show_hidden(self._handle, masked=False)
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
                listener(tokens, start, staging.output_rows(self._handle, end, self._width)[at:].copy())
            return
        rows = [staging.layer_rows(self._handle, layer, end, self._width) for layer in layers]
        rows = rows or [staging.hidden_rows(self._handle, end, self._width)]
        listener(tokens, start + skipped, np.concatenate([each[at + skipped :] for each in rows], axis=1))
