"""Conversations that had to leave a context: llama.cpp's own copies of their cells, taken back bit for bit.

Cells come back in order, as sums over them in another order would round otherwise. Knows tokens and bytes; which
conversation is wanted is the backend's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import llama_cpp.llama_cpp as lib
import numpy as np
from numpy.typing import NDArray

from runtime.backends.checkpoints import Checkpoint, longest
from runtime.backends.pointers import UINT8_P
from runtime.backends.tree import MAIN
from runtime.core.draft import Tokens, common_prefix, usable

# Tokens that a rejected draft may leave, and that are sooner decoded again than a conversation is changed for them
NEGLIGIBLE = 16


@dataclass(frozen=True, slots=True, eq=False)
class SavedState:
    """A conversation's tokens [n], and what the context held of them.

    Where it has `checkpoints` (None: it can be cut in multiples of `grain`) it is of use as a whole, or up to one of
    those.
    """

    tokens: Tokens
    state: NDArray[np.uint8]
    checkpoints: tuple[Checkpoint, ...] | None = None
    grain: int = 1

    def n_shared(self, context: Tokens) -> int:
        """How many of the first tokens of `context[:-1]` it can give back."""
        shared = common_prefix(self.tokens, context[:-1])
        if self.checkpoints is None or shared == len(self.tokens):
            return usable(shared, len(self.tokens), self.grain)
        return longest(self.checkpoints, shared)


class SavedStates:
    """At most `most` of them; the one that was put away first goes first."""

    def __init__(self, handle: Any) -> None:
        self.handle, self.most, self.grain = handle, 0, 1
        self._states: list[SavedState] = []

    def __len__(self) -> int:
        return len(self._states)

    def limit(self, most: int) -> None:
        """Keeps no more than that from now on."""
        self.most = most
        self.keep(most)

    def keep(self, n: int) -> None:
        """Forgets all but the newest `n`."""
        del self._states[: max(0, len(self._states) - n)]

    def n_shared(self, context: Tokens) -> int:
        """The most that one of them shares with `context[:-1]`."""
        return max((each.n_shared(context) for each in self._states), default=0)

    def pop(self, context: Tokens, more_than: int) -> SavedState | None:
        """Takes out the one that shares most with `context[:-1]`, if that is more than so many tokens."""
        best = max(self._states, key=lambda each: each.n_shared(context), default=None)
        if best is None or best.n_shared(context) <= more_than:
            return None
        self._states.remove(best)
        return best

    def add(self, state: SavedState | None) -> None:
        """Takes one in as the newest, if it could be copied."""
        if state is not None:
            self._states.append(state)
            self.limit(self.most)

    def copy(
        self, tokens: Tokens, sequence: int = MAIN, checkpoints: tuple[Checkpoint, ...] | None = None
    ) -> SavedState | None:
        """What the context holds of a sequence, which is these tokens; None where the library cannot copy it."""
        state = np.empty(lib.llama_state_seq_get_size(self.handle, sequence), dtype=np.uint8)
        if not lib.llama_state_seq_get_data(self.handle, state.ctypes.data_as(UINT8_P), len(state), sequence):
            return None
        return SavedState(tokens.copy(), state, checkpoints, self.grain)

    def restore(self, saved: SavedState, sequence: int = MAIN) -> bool:
        """Copies one into the context, which has nothing of that sequence; False where the library cannot."""
        state = saved.state.ctypes.data_as(UINT8_P)
        return bool(lib.llama_state_seq_set_data(self.handle, state, len(saved.state), sequence))
