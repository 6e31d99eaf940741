"""Conversations that had to leave a context: llama.cpp's own copies of their cells, taken back bit for bit.

Cells come back in order, as sums over them in another order would round otherwise. Knows tokens and bytes; which
conversation is wanted is the backend's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import llama_cpp.llama_cpp as lib
import numpy as np
from numpy.typing import NDArray

from runtime.backends.checkpoints import MOST_BYTES, PARTIAL, Checkpoint, longest
from runtime.backends.pointers import UINT8_P
from runtime.backends.tree import MAIN
from runtime.core.draft import Tokens, common_prefix, usable

# Tokens that a rejected draft may leave, and that are sooner decoded again than a conversation is changed for them
NEGLIGIBLE = 16


@dataclass(frozen=True, slots=True, eq=False)
class SavedState:
    """A conversation's tokens [n], and what the context held of them.

    Where it has `checkpoints` (None: it can be cut in multiples of `grain`) it is of use as a whole, or up to one of
    those: none where layers have windows, of which the library copies only what the next token looks at. Tokens behind
    the first `n_asked` are drafts that may have been rejected.
    """

    tokens: Tokens
    state: NDArray[np.uint8]
    n_asked: int
    checkpoints: tuple[Checkpoint, ...] | None = None
    grain: int = 1

    @property
    def n_bytes(self) -> int:
        """Memory that it takes."""
        return len(self.state) + sum(len(each.state) for each in self.checkpoints or ())

    def n_shared(self, context: Tokens) -> int:
        """How many of the first tokens of `context[:-1]` it can give back."""
        shared = common_prefix(self.tokens, context[:-1])
        if self.checkpoints is None or shared == len(self.tokens):
            return usable(shared, self.n_asked, self.grain)
        return longest(self.checkpoints, shared)


@dataclass(frozen=True, slots=True, eq=False)
class HeldConversation:
    """A conversation that a backend holds: its tokens [n], what copies its state, where the library can, so that it can
    be cut at some point, and what drops it.
    """

    tokens: Tokens
    copy: Callable[[int], SavedState | None]
    erase: Callable[[], object]


class SavedStates:
    """Those that were put away: `most` of them, and more where memory has `room` (bytes); the first to come goes first.
    With `most` of 0 there are none.
    """

    def __init__(self, handle: Any) -> None:
        self.handle, self.most, self.grain, self.room = handle, 0, 1, no_room
        self._states: list[SavedState] = []
        self.fetched: list[SavedState] = []  # from disk, for sequences that are about to be read; beside the others

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[SavedState]:
        return iter(self._states)

    def limit(self, most: int) -> None:
        """Keeps no more than that from now on."""
        self.most = most
        self.keep(most)

    def keep(self, n: int) -> None:
        """Forgets all but the newest `n`, and those before them for which there is room."""
        room = self.room() if self.most and len(self._states) > n else 0
        for at in range(len(self._states) - n - 1, -1, -1):
            room -= self._states[at].n_bytes
            if room < 0:
                del self._states[: at + 1]
                break

    def n_shared(self, context: Tokens) -> int:
        """The most that one of them shares with `context[:-1]`."""
        return max((each.n_shared(context) for each in (*self._states, *self.fetched)), default=0)

    def pop(self, context: Tokens, more_than: int) -> SavedState | None:
        """Takes out the one that shares most with `context[:-1]`, if that is more than so many tokens."""
        best = max((*self._states, *self.fetched), key=lambda each: each.n_shared(context), default=None)
        if best is None or best.n_shared(context) <= more_than:
            return None
        (self.fetched if best in self.fetched else self._states).remove(best)
        return best

    def add(self, state: SavedState | None) -> None:
        """Takes one in as the newest, if it could be copied."""
        if state is not None:
            self._states.append(state)
            self.limit(self.most)

    def remove(self, state: SavedState) -> None:
        """Forgets one."""
        self._states.remove(state)

    def copy(
        self, tokens: Tokens, n_asked: int, sequence: int = MAIN, checkpoints: tuple[Checkpoint, ...] | None = None
    ) -> SavedState | None:
        """What the context holds of a sequence, which is these tokens; None where the library cannot copy it."""
        state = np.empty(lib.llama_state_seq_get_size(self.handle, sequence), dtype=np.uint8)
        if not lib.llama_state_seq_get_data(self.handle, state.ctypes.data_as(UINT8_P), len(state), sequence):
            return None
        return SavedState(tokens.copy(), state, min(n_asked, len(tokens)), checkpoints, self.grain)

    def most_points(self, sequence: int) -> int:
        """Return at how many points a copy of a sequence may be cut, by the memory that each takes."""
        n_bytes = int(lib.llama_state_seq_get_size_ext(self.handle, sequence, PARTIAL))
        return max(1, MOST_BYTES // max(1, n_bytes))

    def point(self, n: int, sequence: int, spare: int) -> Checkpoint | None:
        """Copy what the windows look at after the first `n` tokens of a sequence; `spare` is one without tokens."""
        memory = lib.llama_get_memory(self.handle)
        lib.llama_memory_seq_cp(memory, sequence, spare, 0, n)
        state = np.empty(lib.llama_state_seq_get_size_ext(self.handle, spare, PARTIAL), dtype=np.uint8)
        address = state.ctypes.data_as(UINT8_P)
        n_bytes = lib.llama_state_seq_get_data_ext(self.handle, address, len(state), spare, PARTIAL)
        lib.llama_memory_seq_rm(memory, spare, -1, -1)
        return Checkpoint(n, state) if n_bytes else None

    def restore_point(self, point: Checkpoint, sequence: int) -> bool:
        """Copy a point into the context, which holds the tokens before it; False where the library cannot."""
        state = point.state.ctypes.data_as(UINT8_P)
        return bool(lib.llama_state_seq_set_data_ext(self.handle, state, len(point.state), sequence, PARTIAL))

    def restore(self, saved: SavedState, sequence: int = MAIN) -> bool:
        """Copies one into the context, which has nothing of that sequence; False where the library cannot."""
        state = saved.state.ctypes.data_as(UINT8_P)
        return bool(lib.llama_state_seq_set_data(self.handle, state, len(saved.state), sequence))


def no_room() -> int:
    """Nothing beyond what was asked for."""
    return 0


def copied(state: SavedState, point: int) -> SavedState:
    """Return a state that is a copy already."""
    return state
