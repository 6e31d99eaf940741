"""The target's last hidden states in the latest pass of one conversation. Knows tokens and arrays."""

from __future__ import annotations

import numpy as np

from runtime.backends.staging import Rows
from runtime.core.draft import Tokens, common_prefix


class StateTrail:
    """The states of positions [begin, n) of `tokens` [n], drafted ones included."""

    def __init__(self, width: int) -> None:
        self.tokens: Tokens = np.zeros(0, dtype=np.int32)
        self.begin = 0
        self._states: Rows = np.zeros((0, width), dtype=np.float32)

    def shared(self, tokens: Tokens) -> int:
        """Return the number of leading tokens of `tokens` that this conversation has."""
        return common_prefix(self.tokens, tokens)

    def feed(self, tokens: Tokens, start: int, states: Rows) -> None:
        """Record the states [n - start, width] of `tokens` [n] from position `start` on, in place of earlier ones."""
        self.tokens, self.begin, self._states = tokens.copy(), start, states

    def n_true(self, context: Tokens) -> int:
        """Return the number of leading tokens of `context`, without its last one, after which a state is known; 0 if
        it is known after none.
        """
        n = min(self.shared(context), len(context) - 1)
        return n if n > self.begin else 0

    def state(self, n: int) -> Rows:
        """Return the state [width] after the first `n` tokens."""
        found: Rows = self._states[n - 1 - self.begin]
        return found
