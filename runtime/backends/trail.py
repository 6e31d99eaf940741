"""What a draft head knows of one conversation: cells that were made of the target's hidden states, and states that
wait to become cells.

Knows positions, tokens and states; decodes nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from runtime.backends.staging import Rows
from runtime.core.draft import Tokens, common_prefix
from runtime.models.heads import SPARE, STATES


class HeadStep(NamedTuple):
    """A row that the head decoded: a token, and the state it went in with."""

    token: int
    state: Rows  # [1, width]


class Waiting:
    """The latest states of a text that wait to become cells, at most STATES; the others stay in place when one more
    comes, which is after every pass of the target.
    """

    def __init__(self, width: int) -> None:
        self._room: Rows = np.empty((STATES + SPARE, width), dtype=np.float32)
        self._first = self._end = 0

    def __len__(self) -> int:
        return self._end - self._first

    @property
    def n_bytes(self) -> int:
        """That it takes, however many wait."""
        return self._room.nbytes

    @property
    def rows(self) -> Rows:
        """All of them [n, width]: a view, until more come."""
        return self._room[self._first : self._end]

    def add(self, fresh: Rows) -> None:
        """These come behind."""
        fresh = fresh[-STATES:]
        if self._end + len(fresh) > len(self._room):
            kept = self.rows[max(0, len(self) + len(fresh) - STATES) :].copy()
            self._first, self._end = 0, len(kept)
            self._room[: self._end] = kept
        self._room[self._end : self._end + len(fresh)] = fresh
        self._end += len(fresh)
        self._first = max(self._first, self._end - STATES)

    def drop(self, n: int) -> None:
        """The first `n` wait no more."""
        self._first += n

    def keep(self, n: int) -> None:
        """Only the first `n` wait still."""
        self._end = min(self._end, self._first + n)


class Trail:
    """One conversation in `sequence`. Cell P is made of the states of position P, and of the token `lag` after it.

    Cells [begin, n_cells) are made of the target's states; `waiting` are those of the positions from n_cells on.
    `steps` are the last cell's row and those that the head drafted behind it, with its own states.
    """

    def __init__(self, sequence: int, n_ctx: int, width: int, lag: int = 1) -> None:
        self.sequence, self.lag = sequence, lag
        self.tokens: Tokens = np.zeros(n_ctx, dtype=np.int32)
        self.n_tokens = self.begin = self.n_cells = 0
        self.waiting = Waiting(width)
        self.steps: list[HeadStep] = []

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
        self.steps = list(other.steps)
        self.waiting.keep(0)
        self.waiting.add(other.waiting.rows)

    def cut(self, n: int) -> None:
        """Forgets what was made with tokens after the first `n`."""
        self.n_tokens = min(self.n_tokens, n)
        if self.n_cells > n - self.lag:  # the last cell's token is another one, and its state is gone
            self.n_cells, self.steps = max(self.begin, n - self.lag), []
            self.waiting.keep(0)
        else:
            self.waiting.keep(n - self.n_cells)

    def start(self, position: int) -> None:
        """Begins anew at that position."""
        self.begin = self.n_cells = position
        self.steps = []
        self.waiting.keep(0)

    def hear(self, tokens: Tokens, start: int, states: Rows, n_shared: int | None = None) -> None:
        """The target decoded the last of `tokens`, from position `start` on, with these states [rows, width].

        `n_shared` of them it has heard of, where the caller knows.
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
        if n_known > self.n_known:  # more than can wait: a head that begins there drafts a little worse
            self.begin = self.n_cells = n_known - STATES
            self.steps = []

    def n_true(self, context: Tokens) -> int:
        """The positions before which cells of `context` can be made of the target's states."""
        return min(self.n_known, len(context) - 1, self.shared(context))
