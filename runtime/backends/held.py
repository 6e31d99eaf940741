"""The conversations cached for one context: the current one, the saved copies, and switching between them.

Knows tokens and states; the backends run the passes.
"""

from __future__ import annotations

from typing import Any

import llama_cpp.llama_cpp as lib

from runtime.backends.adapters import AdapterSwitch
from runtime.backends.model import LlamaModel
from runtime.backends.pass_switches import BLOCK, NARROW, Attention
from runtime.backends.seat import Seat
from runtime.backends.stored.checkpoints import Checkpoint, message_ends, restore_state
from runtime.backends.stored.saved_states import NEGLIGIBLE, HeldConversation, SavedState, SavedStates
from runtime.backends.tree import MAIN, TreeCache
from runtime.core.draft import Adapters, Tokens
from runtime.core.image_runs import around, position

# Tokens. Kernels process rows in tiles and the remainder separately. Where the two round differently, a prompt that
# shares only its beginning with a cached one is read from a multiple of this on, so its rows fall into the usual tiles
TILE = 32
POINTS = 4  # checkpoints in a copy of a conversation with sliding windows


class HeldConversations:
    """One conversation in the context, and others kept as copies.

    Of layers with sliding windows, llama.cpp copies only the cells that the next token attends to. So such a
    conversation is restored whole or at a checkpoint, and then the context cannot be truncated before that point.
    """

    model: LlamaModel
    attention: Attention
    n_rows: int
    memory: Any
    tree: TreeCache
    saved: SavedStates
    seat: Seat  # of the current conversation
    _switch: AdapterSwitch | None = None  # where adapters were used

    def use(self, adapters: Adapters) -> None:
        """Use these adapters from now on; see TargetBackend."""
        if adapters != self.saved.adapters:
            self._switch = self._switch or AdapterSwitch(self.saved.handle, self.model.adapters)
            self.saved.adapters = adapters

    @property
    def n_spare(self) -> int:
        """Id of a sequence in which nothing is decoded."""
        raise NotImplementedError

    def _n_shared(self, context: Tokens, exact: bool) -> int:
        """Return the number of leading tokens of `context[:-1]` that the main sequence has cached and may keep."""
        if self.seat.reuse.adapters != self.saved.adapters:
            return 0
        return self.seat.reuse.shared(self.seat.tokens[: self.seat.n_held], context, self._grain(exact))

    def _grain(self, exact: bool) -> int:
        """Return the number of tokens in multiples of which a prefix is reused."""
        return self.saved.grain if exact else 1

    def _taken(self, context: Tokens, n_shared: int) -> list[int]:
        """Return the nodes of the last tree that `context[:-1]` follows."""
        has_tree = bool(self.tree.draft.tokens)
        return self.tree.taken(context[:-1]) if has_tree and n_shared == self.seat.n_held else []

    def _n_kept(self, context: Tokens, exact: bool) -> int:
        """Return the number of leading tokens of `context[:-1]` in the cache, those of the last tree included."""
        n = self._n_shared(context, exact)
        return min(n + len(self._taken(context, n)), len(context) - 1)

    def n_cached(self, context: Tokens, exact: bool = True) -> int:
        """Return the number of leading tokens of `context` that can be reused; the last token is always decoded."""
        here = self._n_kept(context, exact)
        saved = self.saved.n_shared(context, exact)
        return saved if saved > here + NEGLIGIBLE else here

    @property
    def slots(self) -> int:
        """Maximum number of cached conversations, including the one in the context."""
        return 1 + self.saved.most

    @property
    def n_held(self) -> int:
        """Number of cached conversations, including the one in the context."""
        return 1 + len(self.saved)

    def set_slots(self, n: int) -> None:
        """Keep up to `n` conversations from now on, including the one in the context."""
        self.saved.limit(n - 1)

    def read_in_tiles(self) -> None:
        """Reuse prefixes for exact passes only in multiples of TILE from now on, so that the cache changes no rounding.

        Needed where rounding depends on the width of a pass.
        """
        self.saved.grain = TILE

    def _is_piece(self, start: int, n: int) -> bool:
        """Return whether a pass from `start` to `n` without a draft rounds as one for a reply with a seed does."""
        has_blocks = self.attention.has_blocks and n - start >= BLOCK
        return n - start == 1 or (start % self.saved.grain == 0 and not has_blocks)

    def _most_read(self, exact: bool) -> int | None:
        """Return the most rows of a pass that reads; None if they are not limited further."""
        return max(NARROW, self.n_rows) if exact and self.attention.has_blocks else None

    def resume(self, context: Tokens, exact: bool = True) -> None:
        """Restore the cached conversation that `context` continues, without losing another; see Backend."""
        if not self.saved.most and not self.saved.fetched:
            return
        shared = self._n_shared(context, exact)
        shared += len(self._taken(context, shared))
        is_lost, is_short = shared < self.seat.n_held - NEGLIGIBLE, shared < len(context) - NEGLIGIBLE
        if not is_lost and not is_short:
            return
        better = self.saved.pop(context, self._n_kept(context, exact) + NEGLIGIBLE, exact)
        if is_lost:
            self._save()
        if better is not None:
            self._take_back(better, context, exact)

    def _take_back(self, state: SavedState, context: Tokens, exact: bool) -> None:
        """Replace the conversation in the context by a saved one that begins like `context`."""
        n = state.n_shared(context, exact)
        self._restore(state)
        if self.model.window and self.seat.n_held and state.checkpoints:
            self._cut(state.checkpoints, n)
        if n < len(state.tokens) - NEGLIGIBLE:
            self.saved.add(state)  # a different conversation that only has the same beginning

    def _cut(self, points: tuple[Checkpoint, ...], n: int) -> None:
        """Truncate the restored conversation at its checkpoint of `n` tokens, if it has one."""
        point = next((each for each in points if each.n == n < self.seat.n_held), None)
        if point is not None:
            self.seat.reuse.n_whole = 0
            self._drop(n)
            self.seat.reuse.n_asked = self.seat.reuse.n_whole = n
            if not restore_state(self.saved.handle, point, self.seat.sequence):
                self._drop(0)

    def _restore(self, state: SavedState) -> None:
        """Replace the conversation in the context by a saved one."""
        self._clear(wipes=False)
        if self.saved.restore(state):
            state.fill(self.seat, bool(self.model.window))
        else:
            self._clear()

    def _save(self) -> None:
        """Save a copy of the conversation in the context."""
        self.tree.settle([])
        self._drop(len(self.seat.asked))
        self.saved.add(self._copy(), self._most_saved)

    @property
    def _most_saved(self) -> int:
        """Number of conversations to keep as copies."""
        return self.saved.most

    def _copy(self, point: int = 0) -> SavedState | None:
        """Return a copy of the current conversation that can be truncated at `point`; None where llama.cpp cannot."""
        if self.tree.draft.tokens:
            self.tree.settle([])
        if self.model.window:
            self._drop(len(self.seat.asked))
        tokens = self.seat.tokens[: self.seat.n_held]
        return self.saved.copy(tokens, self.seat.reuse, self.seat.sequence, self._points(tokens, point))

    def _points(self, tokens: Tokens, point: int = 0) -> tuple[Checkpoint, ...] | None:
        """Return checkpoints at `point` and after messages; None for a conversation that can be truncated anywhere."""
        if not self.model.window:
            return None
        ends = message_ends(tokens, self.model.vocab.ends)
        wanted = [n - n % self.saved.grain for n in (min(point, len(tokens)), *ends[:-POINTS:-1], *ends[:1])]
        can_be_had = [n for n in dict.fromkeys(wanted) if max(self.seat.reuse.n_whole, 1) <= n < len(tokens)]
        best = sorted(can_be_had[: self.saved.most_points(self.seat.sequence)])
        found = (self.saved.point(n, self._position(n), self.seat.sequence, self.n_spare) for n in best)
        return tuple(each for each in found if each is not None)

    def conversations(self) -> list[HeldConversation]:
        """Return the conversation in the context, followed by the saved ones."""
        here = HeldConversation(self.seat.asked.copy(), self._copy, self._clear, self.seat.reuse.adapters)
        return [here, *self.saved.conversations()]

    def _position(self, n: int, tokens: Tokens | None = None) -> int:
        """Return the position that follows the first `n` tokens, of the current conversation by default."""
        return position(self.seat.tokens if tokens is None else tokens, n) if self.model.is_spatial else n

    def _whole(self, start: int) -> int:
        """Return `start`, or the beginning of the images around it that cannot be cut."""
        return around(self.seat.tokens[: self.seat.n_held], start)[0] if self.model.is_spatial else start

    def _drop(self, start: int) -> int:
        """Remove tokens from `start` on, whole images where they have no positions of their own; return the number of
        tokens left.
        """
        start = self._whole(start)
        if not lib.llama_memory_seq_rm(self.memory, MAIN, self._position(start), -1):
            self._clear()
            return 0
        if self.tree.garbage:
            self.tree.rewind(self._position(start))
        self.seat.cut(start)
        return start

    def _clear(self, wipes: bool = True) -> None:
        """Empty the cache."""
        lib.llama_memory_clear(self.memory, wipes)
        self.tree.clear()
        self.seat.clear()
