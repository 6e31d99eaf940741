"""What a draft head knows of one conversation: cells that were made of the target's hidden states, and states that
wait to become cells.

Knows positions, tokens and states; decodes nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from runtime.backends.staging import Rows
from runtime.core.draft import Tokens, common_prefix
from runtime.models.heads import STATES


class Step(NamedTuple):
    """A row that the head decoded: a token, and the state it went in with."""

    token: int
    state: Rows  # [1, width]


class Trail:
    """One conversation in `sequence`. Cell P is made of the states of position P, and of the token `lag` after it.

    Cells [begin, n_cells) are made of the target's states; `waiting` are those of the positions from n_cells on.
    `steps` are the last cell's row and those that the head drafted behind it, with its own states.
    """

    def __init__(self, sequence: int, n_ctx: int, width: int, lag: int = 1) -> None:
        self.sequence, self.lag = sequence, lag
        self.tokens: Tokens = np.zeros(n_ctx, dtype=np.int32)
        self.n_tokens = self.begin = self.n_cells = 0
        self.waiting: Rows = np.empty((0, width), dtype=np.float32)
        self.steps: list[Step] = []

    @property
    def n_known(self) -> int:
        """The position up to which states are known."""
        return self.n_cells + len(self.waiting)

    @property
    def n_held(self) -> int:
        """Cells of the head's cache that it has."""
        return max(0, self.n_cells - self.begin) + max(0, len(self.steps) - 1)

    def shared(self, tokens: Tokens) -> int:
        """How many of the first of `tokens` it has heard of."""
        return common_prefix(self.tokens[: self.n_tokens], tokens)

    def become(self, other: Trail) -> None:
        """Knows what the other does, whose cells its sequence has."""
        self.tokens[: other.n_tokens] = other.tokens[: other.n_tokens]
        self.n_tokens, self.begin, self.n_cells = other.n_tokens, other.begin, other.n_cells
        self.waiting, self.steps = other.waiting, list(other.steps)

    def cut(self, n: int) -> None:
        """Forgets what was made with tokens after the first `n`."""
        self.n_tokens = min(self.n_tokens, n)
        if self.n_cells > n - self.lag:  # the last cell's token is another one, and its state is gone
            self.n_cells, self.waiting, self.steps = max(self.begin, n - self.lag), self.waiting[:0], []
        else:
            self.waiting = self.waiting[: n - self.n_cells]

    def start(self, position: int) -> None:
        """Begins anew at that position."""
        self.begin = self.n_cells = position
        self.waiting, self.steps = self.waiting[:0], []

    def hear(self, tokens: Tokens, start: int, states: Rows) -> None:
        """The target decoded the last of `tokens`, from position `start` on, with these states [rows, width]."""
        n_shared = self.shared(tokens)
        self.cut(n_shared)
        if not self.begin <= start <= self.n_known:
            self.start(start)
        fresh = states[max(0, self.n_known - start) :]
        self.waiting = np.concatenate([self.waiting, fresh])
        self.tokens[n_shared : len(tokens)] = tokens[n_shared:]
        self.n_tokens = len(tokens)
        if len(self.waiting) > STATES:  # a head that begins there drafts a little worse, and memory has a bound
            self.begin = self.n_cells = self.n_known - STATES
            self.waiting, self.steps = self.waiting[-STATES:], []

    def n_true(self, context: Tokens) -> int:
        """The positions before which cells of `context` can be made of the target's states."""
        return min(self.n_known, len(context) - 1, self.shared(context))
