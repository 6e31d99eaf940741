"""The target's states that heads without a cache of their own start from: LatestStates, StateTrail.

Knows tokens and states; decodes nothing.
"""

from __future__ import annotations

import numpy as np

from runtime.backends.heads.trail import OnTarget
from runtime.backends.llama import LlamaBackend
from runtime.backends.shown_states import Rows
from runtime.core.draft import Tokens, common_prefix


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
