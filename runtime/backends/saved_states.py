"""Conversations that had to leave a context: llama.cpp's own copies of their cells, taken back bit for bit.

One conversation is in the context at a time, in order and by itself: among others its cells would be summed in another
order, and the logits would round otherwise. Knows tokens and bytes; which conversation is wanted is the backend's.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import llama_cpp.llama_cpp as lib
import numpy as np
from numpy.typing import NDArray

from runtime.backends.tree import MAIN
from runtime.core.draft import Tokens

UINT8_P = ctypes.POINTER(ctypes.c_uint8)


@dataclass(frozen=True, slots=True, eq=False)
class Conversation:
    """Its tokens [n], and what the context held of them."""

    tokens: Tokens
    state: NDArray[np.uint8]

    def n_shared(self, context: Tokens) -> int:
        """How many of the first tokens of `context[:-1]` it has."""
        n = min(len(self.tokens), len(context) - 1)
        same = self.tokens[:n] == context[:n]
        return n if same.all() else int(same.argmin())


class KeptConversations:
    """At most `most` of them; the one that was put away first goes first."""

    def __init__(self, handle: Any) -> None:
        self.handle, self.most = handle, 0
        self._kept: list[Conversation] = []

    def __len__(self) -> int:
        return len(self._kept)

    def limit(self, most: int) -> None:
        """Keeps no more than that from now on."""
        self.most = most
        del self._kept[: max(0, len(self._kept) - most)]

    def n_shared(self, context: Tokens) -> int:
        """The most that one of them shares with `context[:-1]`."""
        return max((each.n_shared(context) for each in self._kept), default=0)

    def pop(self, context: Tokens, more_than: int) -> Conversation | None:
        """Takes out the one that shares most with `context[:-1]`, if that is more than so many tokens."""
        best = max(self._kept, key=lambda each: each.n_shared(context), default=None)
        if best is None or best.n_shared(context) <= more_than:
            return None
        self._kept.remove(best)
        return best

    def add(self, conversation: Conversation) -> None:
        """As the newest."""
        self._kept.append(conversation)
        self.limit(self.most)

    def put_away(self, tokens: Tokens) -> None:
        """Copies what the context holds, which is these tokens; keeps nothing where the library cannot."""
        state = np.empty(lib.llama_state_seq_get_size(self.handle, MAIN), dtype=np.uint8)
        if lib.llama_state_seq_get_data(self.handle, state.ctypes.data_as(UINT8_P), len(state), MAIN):
            self.add(Conversation(tokens.copy(), state))

    def restore(self, kept: Conversation) -> bool:
        """Copies one into the context, which is empty; False where the library cannot."""
        return bool(
            lib.llama_state_seq_set_data(self.handle, kept.state.ctypes.data_as(UINT8_P), len(kept.state), MAIN)
        )
