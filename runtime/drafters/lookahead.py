"""Lookahead decoding (Fu et al., arXiv 2402.02057): drafts from the target's own predictions, without a draft model.

A window of predicted tokens is part of the target's passes as branches of the token tree. The target's output there
replaces the window's tokens in the next pass (Jacobi iteration). The n-grams that result are pooled, and those that
begin with the context's last token are verified in the same pass. Knows token ids and logits; `best_shape` finds from
the cost of passes whether it pays.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from runtime.core.draft import NO_DRAFT, Draft, Logits, Path, Tokens
from runtime.core.drafter import Budget, Drafter
from runtime.drafters.registry import Cost, Needs, Registered

ORDERS = range(2, 6)  # n-gram lengths that are compared
# Fitted to the paper's measurements: acceptance probability of a token of a good n-gram, and steps per such n-gram
RIGHT, STEPS_PER_HIT = 0.425, 3.106
MIN_ROWS = 2  # rows of the smallest shape
DOUBT = 0.5  # 1 - confidence in an n-gram seen once; multiplied by this for each further time
MAX_STARTS = 4096  # first tokens for which n-grams are kept


@dataclass(frozen=True, slots=True)
class WindowShape:
    """Shape of the window: `n_columns` positions with `order` - 1 rows each, and as many n-grams to verify."""

    n_columns: int
    order: int

    @property
    def n_window(self) -> int:
        """Rows that the window adds to a pass."""
        return self.n_columns * (self.order - 1)

    @property
    def n_rows(self) -> int:
        """Rows of the window and of the n-grams."""
        return 2 * self.n_window

    @property
    def tokens_per_step(self) -> float:
        """Expected tokens per step by the paper's formula, with the acceptance probability RIGHT."""
        missed = sum((1 - RIGHT**depth) ** self.n_columns for depth in range(1, self.order))
        return 1 + (self.order - 1 - missed) / STEPS_PER_HIT


def best_shape(passes: Sequence[float]) -> tuple[WindowShape, float]:
    """Return the shape with the highest expected speed and its gain over plain decode (a factor).

    `passes` [at least 3] are the seconds of passes over 1, 2, ... rows.
    """
    shapes = [
        WindowShape(n, order)
        for order in ORDERS
        for n in range(1, len(passes))
        if WindowShape(n, order).n_rows < len(passes)
    ]
    gains = [shape.tokens_per_step * passes[0] / max(passes[shape.n_rows], 1e-9) for shape in shapes]
    best = max(range(len(shapes)), key=gains.__getitem__)
    return shapes[best], gains[best]


class Pool:
    """N-grams by their first token, with counts; the newest `n_each` for each first token."""

    def __init__(self, n_each: int) -> None:
        self.n_each = n_each
        self._found: dict[int, dict[Path, int]] = {}

    def add(self, ngram: Path) -> None:
        """Add an n-gram as the newest."""
        continuations = self._found.setdefault(ngram[0], {})
        continuations[ngram[1:]] = continuations.pop(ngram[1:], 0) + 1
        if len(continuations) > self.n_each:
            del continuations[next(iter(continuations))]
        if len(self._found) > MAX_STARTS:
            del self._found[next(iter(self._found))]

    def after(self, token: int) -> list[tuple[Path, int]]:
        """Return (continuation, count) pairs, by count and then newest first."""
        newest_first = [*reversed(self._found.get(token, {}).items())]
        newest_first.sort(key=lambda item: -item[1])
        return newest_first


@Registered("lookahead", Cost.TARGET, Needs.WINDOW, label="the model's own look ahead", place=10)
class LookaheadDrafter(Drafter):
    """Proposes n-grams from the pool, and adds the window to the draft."""

    def __init__(self, shape: WindowShape) -> None:
        self.shape, self.n_window_rows = shape, shape.n_window
        self._pool = Pool(shape.n_columns)
        self._rng = random.Random(0)
        self._levels: list[
            list[int]
        ] = []  # [order - 1][n_columns] predicted tokens, oldest first; each level is one position further ahead
        self._at = 0  # the position of the first predicted token

    def begin(self, context: Tokens, expected: Sequence[int]) -> None:
        """Clear the window, which belongs to another text."""
        self._levels = []

    def propose(self, context: Tokens, budget: Budget) -> Draft:
        """Return a tree of the likeliest n-gram as far as it is worth verifying, the other n-grams, and the window.

        The window is added without the stopping criterion.
        """
        if not budget.max_k:
            return NO_DRAFT
        self._move(context)
        (first, n_seen), *others = self._pool.after(int(context[-1])) or [((), 0)]
        k, confidence = 0, 1 - DOUBT**n_seen
        if not first:
            budget.should_continue(0.0)  # so that the steps without an n-gram are counted
        while k < len(first) and budget.should_continue(confidence, first[k]):
            k += 1
        guesses = [first[:k], *(other for other, _ in others)] if k else []
        return tree_of([*guesses, *self._columns()]).first(budget.max_k)

    def _move(self, context: Tokens) -> None:
        """Move the window to the end of the context; new columns get random tokens of the context."""
        passed = len(context) - self._at
        if not self._levels or not 0 <= passed < self.shape.n_columns:
            passed, self._levels = (
                self.shape.n_columns,
                [[0] * self.shape.n_columns for _ in range(1, self.shape.order)],
            )
        self._at = len(context)
        for level in self._levels:
            level[:] = [*level[passed:], *(int(context[self._rng.randrange(len(context))]) for _ in range(passed))]

    def _columns(self) -> list[Path]:
        """Return the window as paths after the context: the oldest tokens up to a position, then those that later
        passes gave from there on.
        """
        oldest, *later = self._levels
        return [(*oldest[: i + 1], *(level[i] for level in later)) for i in range(self.shape.n_columns)]

    def observe(self, draft: Draft, logits: Logits) -> None:
        """Add the target's tokens at the ends of the columns to the window and the pool; does nothing if the window was
        not in the draft. `logits` [1 + len(draft), n_vocab].
        """
        columns = self._columns() if self._levels else []
        ends = [node_at(draft, column) for column in columns]
        if not ends or None in ends:
            return
        newest = [int(logits[end + 1].argmax()) for end in ends if end is not None]
        for column, token in zip(columns, newest, strict=True):
            self._pool.add((*column[1 - self.shape.order :], token))
        self._levels, self._at = [*self._levels[1:], newest], self._at + 1


def tree_of(paths: Iterable[Path]) -> Draft:
    """Return the tree of these paths after the context, in which common beginnings are shared."""
    nodes: dict[tuple[int, int], int] = {}  # (parent, token) -> node
    for path in paths:
        node = -1
        for token in path:
            node = nodes.setdefault((node, token), len(nodes))
    return Draft(tuple([token for _, token in nodes]), tuple([parent for parent, _ in nodes]))


def node_at(draft: Draft, path: Path) -> int | None:
    """Return the node at which `path` ends, or None if the draft lacks it."""
    node = -1
    for token in path:
        child = draft.child(node, token)
        if child is None:
            return None
        node = child
    return node
