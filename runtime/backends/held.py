"""The conversations that a context holds: which one goes on, which are put away, and copies of them.

Knows tokens and states; passes are the backends'.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import llama_cpp.llama_cpp as lib

from runtime.backends.checkpoints import Checkpoint, message_ends
from runtime.backends.model import LlamaModel
from runtime.backends.saved_states import NEGLIGIBLE, HeldConversation, SavedState, SavedStates, copied
from runtime.backends.tree import MAIN, TreeCache
from runtime.core.draft import Tokens, common_prefix, usable

# Kernels take rows in tiles, and what is left over otherwise. Where the two round differently, a text that only begins
# as one that is held is read from a multiple of this on, so that its rows are in the tiles that they have by themselves
TILE = 32
POINTS = 4  # at which a copy of a conversation with windows can be cut


class HeldConversations:
    """One conversation in the context and others beside it.

    Of layers with windows the library copies only what the next token looks at. So such a conversation comes back as a
    whole, or at a point for which that was copied as well, and then the context cannot be cut before it.
    """

    model: LlamaModel
    memory: Any
    tree: TreeCache
    saved: SavedStates
    _held: Tokens
    _n_held: int
    _n_asked = 0  # tokens held that were asked for; those behind are drafts that may have been rejected
    _n_whole = 0  # tokens that came back together, before the last of which the context cannot be cut

    @property
    def n_spare(self) -> int:
        """A sequence that nothing is decoded in."""
        raise NotImplementedError

    @property
    def _number(self) -> int:
        """The sequence of the conversation that goes on."""
        return MAIN

    def _n_shared(self, context: Tokens) -> int:
        """How many of the first tokens of `context[:-1]` the main sequence holds and may keep."""
        n = usable(common_prefix(self._held[: self._n_held], context[:-1]), self._n_asked, self.saved.grain)
        return n if n >= self._n_whole else 0

    def _taken(self, context: Tokens, n_shared: int) -> list[int]:
        """The nodes of the last tree along which `context[:-1]` goes on."""
        has_tree = bool(self.tree.draft.tokens)
        return self.tree.taken(context[:-1]) if has_tree and n_shared == self._n_held else []

    def _n_kept(self, context: Tokens) -> int:
        """How many of the first tokens of `context[:-1]` the context need not decode again."""
        n = self._n_shared(context)
        return min(n + len(self._taken(context, n)), len(context) - 1)

    def n_cached(self, context: Tokens) -> int:
        """How many of the first tokens of `context` need no decoding; its last one always does."""
        here = self._n_kept(context)
        saved = self.saved.n_shared(context)
        return saved if saved > here + NEGLIGIBLE else here

    @property
    def slots(self) -> int:
        """Conversations that may be held, the one in the context included."""
        return 1 + self.saved.most

    @property
    def n_held(self) -> int:
        """Conversations that need not be read again."""
        return 1 + len(self.saved)

    def set_slots(self, n: int) -> None:
        """Holds up to `n` conversations from now on, the one in the context included."""
        self.saved.limit(n - 1)

    def read_in_tiles(self) -> None:
        """Reads texts in such pieces from now on that they round alike whatever is held, where width matters."""
        self.saved.grain = TILE

    def resume(self, context: Tokens) -> None:
        """Brings back what is held of the conversation that `context` continues, and loses no other; see Backend."""
        if not self.saved.most and not self.saved.fetched:
            return
        shared = self._n_shared(context)
        shared += len(self._taken(context, shared))
        is_lost, is_short = shared < self._n_held - NEGLIGIBLE, shared < len(context) - NEGLIGIBLE
        if not is_lost and not is_short:
            return
        better = self.saved.pop(context, self._n_kept(context) + NEGLIGIBLE)
        if is_lost:
            self._save()
        if better is not None:
            self._take_back(better, context)

    def _take_back(self, state: SavedState, context: Tokens) -> None:
        """Put a saved conversation in place of what the context holds, as far as `context` goes on with it."""
        n = state.n_shared(context)
        self._restore(state)
        if self.model.window and self._n_held and state.checkpoints:
            self._cut(state.checkpoints, n)
        if n < len(state.tokens) - NEGLIGIBLE:
            self.saved.add(state)  # another conversation, which only begins alike

    def _cut(self, points: tuple[Checkpoint, ...], n: int) -> None:
        """Cut what came back at one of its points, that of `n` tokens."""
        point = next((each for each in points if each.n == n < self._n_held), None)
        if point is not None:
            self._n_whole = 0
            self._drop(n)
            self._n_asked = self._n_whole = n
            if not self.saved.restore_point(point, self._number):
                self._drop(0)

    def _restore(self, state: SavedState) -> None:
        """Put a saved conversation in place of what the context holds."""
        self._clear(wipes=False)
        if self.saved.restore(state):
            self._n_held, self._n_asked = len(state.tokens), state.n_asked
            self._n_whole = self._n_held if self.model.window else 0
            self._held[: self._n_held] = state.tokens
        else:
            self._clear()

    def _save(self) -> None:
        """Keeps a copy of the conversation in the context."""
        self.tree.settle([])
        self._drop(min(self._n_held, self._n_asked))  # not what was only guessed
        self.saved.add(self._copy())

    def _copy(self, point: int = 0) -> SavedState | None:
        """Copy what the context holds of the current conversation, so that it can be cut at that point."""
        if self.tree.draft.tokens:
            self.tree.settle([])
        if self.model.window:
            self._drop(min(self._n_held, self._n_asked))
        tokens = self._held[: self._n_held]
        return self.saved.copy(tokens, self._n_asked, self._number, self._points(tokens, point))

    def _points(self, tokens: Tokens, point: int = 0) -> tuple[Checkpoint, ...] | None:
        """Copy what is needed to cut a conversation: after messages, and at a `point`. None: it can be cut anywhere."""
        if not self.model.window:
            return None
        ends = message_ends(tokens, self.model.vocab.ends)
        wanted = [n - n % self.saved.grain for n in (min(point, len(tokens)), *ends[:-POINTS:-1], *ends[:1])]
        can_be_had = [n for n in dict.fromkeys(wanted) if max(self._n_whole, 1) <= n < len(tokens)]
        best = sorted(can_be_had[: self.saved.most_points(self._number)])
        found = (self.saved.point(n, self._number, self.n_spare) for n in best)
        return tuple(each for each in found if each is not None)

    def conversations(self) -> list[HeldConversation]:
        """Return what is held, in the context and beside it."""
        here = HeldConversation(self._held[: min(self._n_held, self._n_asked)].copy(), self._copy, self._clear)
        return [here, *self._put_away()]

    def _put_away(self) -> list[HeldConversation]:
        """The conversations beside the context, the last one first."""
        remove = self.saved.remove
        found = [HeldConversation(each.tokens, partial(copied, each), partial(remove, each)) for each in self.saved]
        return found[::-1]

    def _drop(self, start: int) -> int:
        """Drops positions from `start` on; returns how many are left."""
        if not lib.llama_memory_seq_rm(self.memory, MAIN, start, -1):
            self._clear()
            return 0
        if self.tree.garbage:
            self.tree.rewind(start)
        self._n_held, self._n_whole = start, min(self._n_whole, start)
        return start

    def _clear(self, wipes: bool = True) -> None:
        """Empties the cache."""
        lib.llama_memory_clear(self.memory, wipes)
        self.tree.clear()
        self._n_held = self._n_asked = self._n_whole = 0
