"""The hidden states that a context shows to a head, which drafts from them. Must not know who listens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from runtime.backends import staging
from runtime.backends.staging import Rows
from runtime.core.draft import Tokens
from runtime.models.heads import STATES

Listener = Callable[[Tokens, int, Rows], None]  # (a conversation's tokens, position of the first row, states)


class ShownStates:
    """Who is told of them, if anybody is; they are `width` wide for each layer."""

    def __init__(self, handle: Any, width: int) -> None:
        self._handle, self._width = handle, width
        self._layers: tuple[int, ...] | None = None  # whose inputs are shown
        self.listener: Listener | None = None
        self._n_unheard = 0  # passes from now on, of which nobody is told

    def show(self, layers: tuple[int, ...], listener: Listener) -> None:
        """Tells the listener the inputs of these layers for every row that is decoded from now on, side by side; the
        last hidden states where there are none. The model's graph must name them. Of a tree it hears the root.
        """
        if self._layers is None:
            for layer in layers:
                staging.show_layer(self._handle, layer)
            if not layers:
                staging.show_hidden(self._handle, masked=False)
        self._layers, self.listener = layers, listener
        self._n_unheard = 0

    def rest(self, n_passes: int) -> None:
        """Nobody is told of the next `n_passes`."""
        self._n_unheard = n_passes

    def hush(self) -> None:
        """Tells nobody any more. What is shown stays so: another thread may bring the listener back during a pass."""
        self.listener = None

    def tell(self, tokens: Tokens, start: int, at: int) -> None:
        """Tells of the rows from `at` on in the last batch: the last of `tokens`, from position `start` on."""
        listener, layers = self.listener, self._layers
        if listener is None or layers is None:
            return
        if self._n_unheard:
            self._n_unheard -= 1
            return
        n = len(tokens) - start
        skipped, end = max(0, n - STATES), at + n
        rows = [staging.layer_rows(self._handle, layer, end, self._width) for layer in layers]
        rows = rows or [staging.hidden_rows(self._handle, end, self._width)]
        listener(tokens, start + skipped, np.concatenate([each[at + skipped :] for each in rows], axis=1))
