"""Checkpoints of recurrent states, which cannot be truncated: llama.cpp's own copies, restored bit for bit.

Knows tokens and bytes; the backend decides at which points of a conversation a checkpoint is worth its memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import llama_cpp.llama_cpp as lib
import numpy as np
from numpy.typing import NDArray

from runtime.backends.library import UINT8_P
from runtime.backends.tree import MAIN
from runtime.core.draft import Tokens

PARTIAL = lib.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY  # all but the keys and values that can be truncated
MAX_BYTES = 2**28  # of a conversation's checkpoints; more where memory has room, and two of them at any size


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """The recurrent state, or the window cells, after the first `n` tokens of a conversation."""

    n: int
    state: NDArray[np.uint8]


def longest(checkpoints: Iterable[Checkpoint], most: int) -> int:
    """Return the length of the longest checkpoint of at most `most` tokens; 0 where there is none."""
    return max((each.n for each in checkpoints if each.n <= most), default=0)


def message_ends(text: Tokens, ends: Mapping[int, bool]) -> list[int]:
    """Return the positions after the last token of each message, where conversations are likely to be resumed."""
    known = [token for token in np.unique(text).tolist() if token >= 0 and ends[token]]
    return (1 + np.flatnonzero(np.isin(text, known))).tolist() if known else []


def copied_state(handle: Any, n: int, sequence: int = MAIN) -> Checkpoint | None:
    """Return a checkpoint of the state of a sequence, which is that after `n` tokens; None where llama.cpp cannot."""
    state = np.empty(lib.llama_state_seq_get_size_ext(handle, sequence, PARTIAL), dtype=np.uint8)
    address = state.ctypes.data_as(UINT8_P)
    is_copied = lib.llama_state_seq_get_data_ext(handle, address, len(state), sequence, PARTIAL)
    return Checkpoint(n, state) if is_copied else None


def restore_state(handle: Any, point: Checkpoint, sequence: int = MAIN) -> bool:
    """Copy a checkpoint into the context, which has the tokens before it; return False where llama.cpp cannot."""
    state = point.state.ctypes.data_as(UINT8_P)
    return bool(lib.llama_state_seq_set_data_ext(handle, state, len(point.state), sequence, PARTIAL))


class Checkpoints:
    """At most `most` checkpoints of the conversation in a context, shortest first; `room` returns the free bytes."""

    def __init__(self, handle: Any, most: int, room: Callable[[], int]) -> None:
        self.handle, self.most, self._room = handle, most, room
        self.all: tuple[Checkpoint, ...] = ()

    def take(self, n: int) -> None:
        """Copy the state, which is that after `n` tokens; keep nothing where llama.cpp cannot copy it.

        The first checkpoint stays, because other conversations may begin alike; of the others the latest are kept.
        """
        if checkpoint := copied_state(self.handle, n):
            most = max(2, min(self.most, max(MAX_BYTES, self._room()) // max(1, len(checkpoint.state))))
            first, *others = *self.all, checkpoint
            self.all = first, *others[-(most - 1) :]

    def restore(self, n: int) -> bool:
        """Copy the checkpoint of `n` tokens into the context; return False where llama.cpp cannot."""
        return restore_state(self.handle, next(each for each in self.all if each.n == n))

    def cut(self, n: int) -> None:
        """Remove the checkpoints of more than `n` tokens."""
        self.all = tuple(each for each in self.all if each.n <= n)
