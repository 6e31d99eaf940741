"""A draft head's record of one conversation: cells computed from the target's hidden states, and states waiting for it;
for heads without a cache of their own, the latest states only.

Knows positions, tokens and states; decodes nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from runtime.backends.llama import LlamaBackend
from runtime.backends.shown_states import Rows
from runtime.core.draft import Tokens, common_prefix
from runtime.models.heads import SPARE, STATES


class OnTarget:
    """What a backend need not do that drafts from its target's passes."""

    def set_slots(self, n: int) -> None:
        """Do nothing: it follows as many conversations as the target's passes can have."""

    def set_threads(self, one: int, many: int) -> None:
        """Do nothing: there are no threads to choose, or they are the target's."""

    def resume(self, context: Tokens, exact: bool = True) -> None:
        """Do nothing: the target resumes its conversations by itself."""

    def close(self) -> None:
        """Do nothing: there is nothing to free."""


class HeadStep(NamedTuple):
    """A row that the head decoded: a token and the input state."""

    token: int
    state: Rows  # [1, width]


class Waiting:
    """The latest states of a text that wait to become cells, at most STATES.

    Adding states seldom moves the others in memory, because it happens after every pass of the target.
    """

    def __init__(self, width: int) -> None:
        self._room: Rows = np.empty((STATES + SPARE, width), dtype=np.float32)
        self._first = self._end = 0

    def __len__(self) -> int:
        return self._end - self._first

    @property
    def n_bytes(self) -> int:
        """Bytes of memory, for any number of states."""
        return self._room.nbytes

    @property
    def rows(self) -> Rows:
        """All waiting states [n, width]: a view, valid until more are added."""
        return self._room[self._first : self._end]

    def add(self, fresh: Rows) -> None:
        """Append states."""
        fresh = fresh[-STATES:]
        if self._end + len(fresh) > len(self._room):
            kept = self.rows[max(0, len(self) + len(fresh) - STATES) :].copy()
            self._first, self._end = 0, len(kept)
            self._room[: self._end] = kept
        self._room[self._end : self._end + len(fresh)] = fresh
        self._end += len(fresh)
        self._first = max(self._first, self._end - STATES)

    def drop(self, n: int) -> None:
        """Remove the first `n` states."""
        self._first += n

    def keep(self, n: int) -> None:
        """Keep only the first `n` states."""
        self._end = min(self._end, self._first + n)


class Trail:
    """One conversation in `sequence`. Cell P is computed from the states of position P and the token `lag` after it.

    Cells [begin, n_cells) are computed from the target's states; `waiting` has the states of positions from n_cells on.
    `steps` are the last cell's row and the rows that the head drafted after it, with its own states.
    """

    def __init__(self, sequence: int, n_ctx: int, width: int, lag: int = 1) -> None:
        self.sequence, self.lag = sequence, lag
        self.tokens: Tokens = np.zeros(n_ctx, dtype=np.int32)
        self.n_tokens = self.begin = self.n_cells = 0
        self.waiting = Waiting(width)
        self.steps: list[HeadStep] = []

    @property
    def n_known(self) -> int:
        """Position up to which states are known."""
        return self.n_cells + len(self.waiting)

    @property
    def n_held(self) -> int:
        """Number of cells in the head's cache."""
        return max(0, self.n_cells - self.begin) + max(0, len(self.steps) - 1)

    def shared(self, tokens: Tokens) -> int:
        """Return the number of leading tokens of `tokens` that this trail has."""
        return common_prefix(self.tokens[: self.n_tokens], tokens)

    def become(self, other: Trail) -> None:
        """Copy another trail's record; its cells must already be in this sequence."""
        self.tokens[: other.n_tokens] = other.tokens[: other.n_tokens]
        self.n_tokens, self.begin, self.n_cells = other.n_tokens, other.begin, other.n_cells
        self.steps = list(other.steps)
        self.waiting.keep(0)
        self.waiting.add(other.waiting.rows)

    def cut(self, n: int) -> None:
        """Forget everything computed with tokens after the first `n`."""
        self.n_tokens = min(self.n_tokens, n)
        if self.n_cells > n - self.lag:  # the last cell's token has changed, and its state is gone
            self.n_cells, self.steps = max(self.begin, n - self.lag), []
            self.waiting.keep(0)
        else:
            self.waiting.keep(n - self.n_cells)

    def start(self, position: int) -> None:
        """Start again at `position`, without cells or states."""
        self.begin = self.n_cells = position
        self.steps = []
        self.waiting.keep(0)

    def feed(self, tokens: Tokens, start: int, states: Rows, n_shared: int | None = None) -> None:
        """Record the states [rows, width] of `tokens` from position `start` on, which the target decoded.

        `n_shared` is the number of leading tokens that this trail has, where the caller knows it.
        """
        n_shared = self.shared(tokens) if n_shared is None else n_shared
        self.cut(n_shared)
        if not self.begin <= start <= self.n_known:
            self.start(start)
        fresh = states[max(0, self.n_known - start) :]
        n_known = self.n_known + len(fresh)
        self.waiting.add(fresh)
        self.tokens[n_shared : len(tokens)] = tokens[n_shared:]
        self.n_tokens = len(tokens)
        if n_known > self.n_known:  # more than can wait: the head starts later and drafts slightly worse
            self.begin = self.n_cells = n_known - STATES
            self.steps = []

    def n_true(self, context: Tokens) -> int:
        """Return the position before which cells of `context` can be computed from the target's states."""
        return min(self.n_known, len(context) - 1, self.shared(context))


class LatestStates(OnTarget):
    """Base of heads that need only the states of the latest `n_window` positions, of up to `n_trails` conversations."""

    def __init__(self, target: LlamaBackend, n_trails: int, width: int, n_window: int = 1) -> None:
        self.target = target
        self._trails = [StateTrail(width, n_window) for _ in range(n_trails)]  # least recently used first

    def feed(self, tokens: Tokens, start: int, states: Rows) -> None:
        """Record the states [n - start, width] of `tokens` [n] from `start` on, which the target decoded."""
        trail = max(reversed(self._trails), key=lambda each: each.shared(tokens))
        if trail.shared(tokens) < start:  # another conversation, or one that was not recorded so far
            trail = self._trails[0]
        self._trails.remove(trail)
        self._trails.append(trail)
        trail.feed(tokens, start, states)

    def knows(self, context: Tokens) -> bool:
        """Return whether the state before the last token of `context` is known."""
        return self.found(context)[1] == len(context) - 1

    def found(self, context: Tokens) -> tuple[StateTrail, int]:
        """Return the conversation with a state for most tokens of `context`, and their number, 0 for none."""
        found = [(trail, trail.n_true(context)) for trail in reversed(self._trails)]
        return max(found, key=lambda each: each[1])

    def rest(self, n_passes: int) -> None:
        """Ignore the states of the target's next `n_passes`."""
        self.target.shown.rest(n_passes)

    def n_cached(self, context: Tokens, exact: bool = True) -> int:
        """Return the number of tokens of `context` that need no decoding: all, as only the latest state is used."""
        return len(context)

    def close(self) -> None:
        """Stop listening to the target."""
        self.target.shown.remove_listener()


class StateTrail:
    """The states of positions [begin, n) of `tokens` [n], drafted ones included: those of the latest pass, and at least
    the latest `n_window` where they are known.
    """

    def __init__(self, width: int, n_window: int) -> None:
        self._n_window = n_window
        self.tokens: Tokens = np.zeros(0, dtype=np.int32)
        self.begin = 0
        self._states: Rows = np.zeros((0, width), dtype=np.float32)

    def shared(self, tokens: Tokens) -> int:
        """Return the number of leading tokens of `tokens` that this conversation has."""
        return common_prefix(self.tokens, tokens)

    def feed(self, tokens: Tokens, start: int, states: Rows) -> None:
        """Record the states [n - start, width] of `tokens` [n] from position `start` on; earlier ones are kept if this
        conversation has the tokens up to there.
        """
        first = max(self.begin, start + 1 - self._n_window)
        if first < start <= self.begin + len(self._states) and self.shared(tokens) >= start:
            kept = self._states[first - self.begin : start - self.begin]
            states, start = np.concatenate([kept, states]), first
        self.tokens, self.begin, self._states = tokens.copy(), start, states

    def n_true(self, context: Tokens) -> int:
        """Return the number of leading tokens of `context`, without its last one, after which a state is known; 0 if
        it is known after none.
        """
        n = min(self.shared(context), len(context) - 1)
        return n if n > self.begin else 0

    def states(self, n: int) -> Rows:
        """Return the states [1 to n_window, width] of the latest of the first `n` tokens."""
        end = n - self.begin
        return self._states[max(0, end - self._n_window) : end]
