"""Copies of a recurrent state, which no cache can be cut back to: llama.cpp's own, taken and given back bit for bit.

Knows tokens and bytes; at which points of a conversation one is worth its memory is the backend's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import llama_cpp.llama_cpp as lib
import numpy as np
from numpy.typing import NDArray

from runtime.backends.pointers import UINT8_P
from runtime.backends.tree import MAIN
from runtime.core.draft import Tokens

PARTIAL = lib.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY  # all but the keys and values that can be cut
MOST_BYTES = 2**28  # of a conversation's, and more where memory has room; two are kept whatever they take


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """The recurrent state after the first `n` tokens of a conversation."""

    n: int
    state: NDArray[np.uint8]


def longest(checkpoints: Iterable[Checkpoint], most: int) -> int:
    """The tokens of the longest that has no more than `most`; 0 where there is none."""
    return max((each.n for each in checkpoints if each.n <= most), default=0)


def message_ends(text: Tokens, ends: Mapping[int, bool]) -> list[int]:
    """Positions after the last token of each message: conversations are likely to be taken up there."""
    known = [token for token in np.unique(text).tolist() if ends[token]]
    return (1 + np.flatnonzero(np.isin(text, known))).tolist() if known else []


class Checkpoints:
    """At most `most` of the conversation that a context holds, the shortest first; `room` tells the bytes that memory
    has for them.
    """

    def __init__(self, handle: Any, most: int, room: Callable[[], int]) -> None:
        self.handle, self.most, self._room = handle, most, room
        self.all: tuple[Checkpoint, ...] = ()

    def take(self, n: int) -> None:
        """Copies the state, which is that after `n` tokens; keeps nothing where the library cannot.

        The first one stays, because other conversations may begin alike; of the others the latest.
        """
        size = lib.llama_state_seq_get_size_ext(self.handle, MAIN, PARTIAL)
        state = np.empty(size, dtype=np.uint8)
        if lib.llama_state_seq_get_data_ext(self.handle, state.ctypes.data_as(UINT8_P), size, MAIN, PARTIAL):
            most = max(2, min(self.most, max(MOST_BYTES, self._room()) // max(1, size)))
            first, *others = *self.all, Checkpoint(n, state)
            self.all = first, *others[-(most - 1) :]

    def restore(self, n: int) -> bool:
        """Copies the one of `n` tokens into the context; False where the library cannot."""
        state = next(each.state for each in self.all if each.n == n)
        return bool(
            lib.llama_state_seq_set_data_ext(self.handle, state.ctypes.data_as(UINT8_P), len(state), MAIN, PARTIAL)
        )

    def cut(self, n: int) -> None:
        """The conversation goes on otherwise after `n` tokens."""
        self.all = tuple(each for each in self.all if each.n <= n)
