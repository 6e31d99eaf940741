"""What a drafter hands over: tokens guessed to follow a context, and where they were sampled from.

Pure data; knows no model, no cache and no sampling rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int32]  # [n] token ids
Logits = NDArray[np.float32]  # [rows, n_vocab], or one row [n_vocab]


@dataclass(frozen=True, slots=True)
class Distribution:
    """A distribution over few of the vocabulary's tokens; all others have probability 0."""

    ids: NDArray[np.int64]  # [n], ascending
    probs: NDArray[np.float64]  # [n], positive, sum 1

    def of(self, token: int) -> float:
        """The token's probability."""
        i = int(self.ids.searchsorted(token))
        return float(self.probs[i]) if i < len(self.ids) and self.ids[i] == token else 0.0


@dataclass(frozen=True, slots=True)
class Draft:
    """Tokens guessed to follow a context: a chain, or a tree when `parents` is given.

    A node stands after its parent (`parents[i] < i`), and no two children of a node carry the same token.
    """

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] | None = None  # node index, -1 = the context's last token; None = chain
    probs: tuple[Distribution, ...] | None = None  # what each token was sampled from; None = point masses

    def __len__(self) -> int:
        return len(self.tokens)

    def children(self, node: int) -> Iterator[int]:
        """The nodes that directly follow `node`, in order."""
        if self.parents is None:
            return iter(range(node + 1, min(node + 2, len(self.tokens))))
        return (child for child, parent in enumerate(self.parents) if parent == node)


NO_DRAFT = Draft()


@dataclass(frozen=True, slots=True)
class Pick:
    """A drafter's choice of one token by the reply's own sampling rule."""

    token: int
    confidence: float  # probability of the likeliest token: known before the token is drawn, so stopping on it is lossless
    distribution: Distribution | None  # what `token` was drawn from, where the rejection rule needs it


@dataclass(frozen=True, slots=True)
class Budget:
    """What a drafter may spend on one proposal, and how it chooses a token from its own logits."""

    max_k: int
    go_on: Callable[[float], bool]  # confidence of the next token -> is it worth drafting?
    pick: Callable[[Logits, int], Pick]  # (logits row, tokens drafted before it) -> choice


class Drafter:
    """Proposes nothing, so decoding is plain. Subclasses guess."""

    name = "none"
    is_free = False  # costs so little that it may be asked on every step

    def propose(self, context: Tokens, budget: Budget) -> Draft:
        """At most `budget.max_k` tokens that may follow `context` [n]."""
        return NO_DRAFT

    def close(self) -> None:
        """Frees what the drafter holds."""
