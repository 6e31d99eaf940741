"""The target's latest last hidden states of one conversation. Knows tokens and arrays."""

from __future__ import annotations

import numpy as np

from runtime.backends.staging import Rows
from runtime.core.draft import Tokens, common_prefix


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
