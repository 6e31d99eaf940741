"""Saved conversations that had to leave a context: llama.cpp's own copies of their cells, restored bit for bit.

Cells are restored in order, because sums over them in another order would round differently. Knows tokens and bytes;
the backend decides which conversation to restore.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import llama_cpp.llama_cpp as lib
import numpy as np
from numpy.typing import NDArray

from runtime.backends.library import UINT8_P
from runtime.backends.seat import Reuse, Seat
from runtime.backends.stored.checkpoints import MAX_BYTES, PARTIAL, Checkpoint, copied_state, longest
from runtime.backends.tree import MAIN
from runtime.core.draft import Adapters, Tokens, common_prefix, usable
from runtime.core.image_runs import resumable

# Tokens: a difference this small, such as a rejected draft leaves, is decoded again instead of switching conversations
NEGLIGIBLE = 16
MAX_SAVED = 256  # saved conversations, with each of which every new prompt is compared


@dataclass(frozen=True, slots=True, eq=False)
class SavedState:
    """Tokens [n] of a conversation, and a copy of their cells.

    Where `checkpoints` is None, it can be truncated to any multiple of `grain`. Otherwise it is restored whole or at a
    checkpoint: recurrent states cannot be truncated, and of sliding windows llama.cpp copies only the cells that the
    next token attends to. `n_asked`, `n_exact` and `adapters` are those of Reuse.
    """

    tokens: Tokens
    state: NDArray[np.uint8]
    n_asked: int
    checkpoints: tuple[Checkpoint, ...] | None = None
    grain: int = 1
    n_exact: int = 0
    adapters: Adapters = ()

    @property
    def n_bytes(self) -> int:
        """Bytes of memory used."""
        return len(self.state) + (sum(len(each.state) for each in self.checkpoints) if self.checkpoints else 0)

    def contains(self, other: SavedState) -> bool:
        """Return whether as much of any prompt can be reused of this state as of the other one."""
        n = len(other.tokens)
        begins_alike = n <= len(self.tokens) and np.array_equal(self.tokens[:n], other.tokens)
        reuse, others = ((each.n_asked, each.n_exact, each.grain, each.adapters) for each in (self, other))
        return begins_alike and self.checkpoints is None and reuse == others

    def n_shared(self, context: Tokens, exact: bool) -> int:
        """Return the number of leading tokens of `context[:-1]` that can be reused of this state."""
        shared = common_prefix(self.tokens, context[:-1])
        n = usable(shared, self.n_asked, self.n_exact, self.grain if exact else 1)
        n = resumable(context, n, exact and self.grain > 1 and n < self.n_asked - 1)
        return n if self.checkpoints is None or n == len(self.tokens) else longest(self.checkpoints, n)

    def fill(self, seat: Seat, is_whole: bool) -> None:
        """Note in a seat that it has a copy of this; with `is_whole` it cannot be truncated."""
        seat.n_held = n = len(self.tokens)
        seat.reuse.set(self.n_asked, self.n_exact, n if is_whole else 0)
        seat.reuse.adapters = self.adapters
        seat.tokens[:n] = self.tokens


@dataclass(frozen=True, slots=True, eq=False)
class HeldConversation:
    """A conversation that a backend has cached: its tokens [n], functions that copy and erase it, and its adapters.

    `copy(point)` returns a state that can be truncated at `point`, or None where llama.cpp cannot copy it.
    """

    tokens: Tokens
    copy: Callable[[int], SavedState | None]
    erase: Callable[[], object]
    adapters: Adapters = ()


class SavedStates:
    """The saved conversations, oldest first: `most` of them, and up to MAX_SAVED where memory has `room` (bytes).

    The oldest is removed first. With `most` of 0 none are kept.
    """

    def __init__(self, handle: Any) -> None:
        self.handle, self.most, self.grain, self.room = handle, 0, 1, no_room
        self.adapters: Adapters = ()  # with which tokens are decoded now; states with others are not reused
        self._states: list[SavedState] = []
        self.refused: list[SavedState] = []  # the last ones that llama.cpp could not restore
        self.fetched: list[SavedState] = []  # from disk, for prompts about to be read; not counted in `most`

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[SavedState]:
        return iter(self._states)

    def limit(self, most: int) -> None:
        """Set the maximum number of saved conversations to `most`."""
        self.most = most
        self.keep(most)

    def keep(self, n: int) -> None:
        """Remove all but the newest `n` and those older ones for which memory has room, up to MAX_SAVED."""
        del self._states[: max(0, len(self._states) - max(n, MAX_SAVED))]
        room = self.room() if self.most and len(self._states) > n else 0
        for at in range(len(self._states) - n - 1, -1, -1):
            room -= self._states[at].n_bytes
            if room < 0:
                del self._states[: at + 1]
                break

    def n_shared(self, context: Tokens, exact: bool) -> int:
        """Return the largest number of leading tokens of `context[:-1]` that can be reused of a saved state."""
        return self._best(context, exact, 0)[1]

    def pop(self, context: Tokens, more_than: int, exact: bool) -> SavedState | None:
        """Remove and return the state that shares most with `context[:-1]`; None unless `more_than` is exceeded."""
        best, _ = self._best(context, exact, more_than)
        if best is not None:
            self.fetched = [each for each in self.fetched if each is not best]  # another thread may add one
            self._states = [each for each in self._states if each is not best]
        return best

    def _best(self, context: Tokens, exact: bool, most: int) -> tuple[SavedState | None, int]:
        """Return the state that shares most tokens with `context[:-1]`, if more than `most`, and their number."""
        best = None
        for each in (*self._states, *self.fetched):
            # Only states that also have the token after those can share more, and few do
            is_longer = most < min(len(each.tokens), len(context) - 1) and each.tokens[most] == context[most]
            if is_longer and each.adapters == self.adapters:
                n = each.n_shared(context, exact)
                best, most = (each, n) if n > most else (best, most)
        return best, most

    def add(self, state: SavedState | None, n: int | None = None) -> None:
        """Add a state as the newest, without those that it contains, and keep the newest `n`, by default `most`. None
        stands for a failed copy.
        """
        if state is not None:
            self._states = [each for each in self._states if not state.contains(each)]
            self._states.append(state)
            self.keep(self.most if n is None else n)

    def conversations(self) -> list[HeldConversation]:
        """Return the saved conversations, newest first."""
        found = (
            HeldConversation(each.tokens, partial(copied, each), partial(self.remove, each), each.adapters)
            for each in self
        )
        return [*found][::-1]

    def remove(self, state: SavedState) -> None:
        """Remove a state."""
        self._states.remove(state)

    def copy(
        self, tokens: Tokens, reuse: Reuse, sequence: int = MAIN, checkpoints: tuple[Checkpoint, ...] | None = None
    ) -> SavedState | None:
        """Return a copy of a sequence, which consists of these tokens; None where llama.cpp cannot copy it."""
        state = np.empty(lib.llama_state_seq_get_size(self.handle, sequence), dtype=np.uint8)
        if not lib.llama_state_seq_get_data(self.handle, state.ctypes.data_as(UINT8_P), len(state), sequence):
            return None
        n_asked, n_exact = min(reuse.n_asked, len(tokens)), min(reuse.n_exact, len(tokens))
        return SavedState(tokens.copy(), state, n_asked, checkpoints, self.grain, n_exact, reuse.adapters)

    def most_points(self, sequence: int) -> int:
        """Return the maximum number of checkpoints in a copy of a sequence, given the memory that each takes."""
        n_bytes = int(lib.llama_state_seq_get_size_ext(self.handle, sequence, PARTIAL))
        return max(1, MAX_BYTES // max(1, n_bytes))

    def point(self, n: int, end: int, sequence: int, spare: int) -> Checkpoint | None:
        """Return a checkpoint of the window cells after the first `n` tokens, which end at position `end`; `spare` is
        an empty sequence.

        None where llama.cpp cannot copy it.
        """
        memory = lib.llama_get_memory(self.handle)
        lib.llama_memory_seq_cp(memory, sequence, spare, 0, end)
        point = copied_state(self.handle, n, spare)
        lib.llama_memory_seq_rm(memory, spare, -1, -1)
        return point

    def restore(self, saved: SavedState, sequence: int = MAIN) -> bool:
        """Copy a state into an empty sequence of the context; return False where llama.cpp cannot."""
        state = saved.state.ctypes.data_as(UINT8_P)
        if lib.llama_state_seq_set_data(self.handle, state, len(saved.state), sequence):
            return True
        self.refused = [*self.refused[-3:], saved]
        return False


def no_room() -> int:
    """Return 0: no memory for more than `most` states."""
    return 0


def copied(state: SavedState, point: int) -> SavedState:
    """Return `state`, which is already a copy."""
    return state
