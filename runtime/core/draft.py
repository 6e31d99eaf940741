"""What a drafter hands over: tokens guessed to follow a context, and where they were sampled from.

Pure data; knows no model, no cache and no sampling rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int32]  # [n] token ids
Logits = NDArray[np.float32]  # [rows, n_vocab], or one row [n_vocab]
Path = tuple[int, ...]  # tentative tokens after a context


@dataclass(frozen=True, slots=True)
class Distribution:
    """A distribution over few of the vocabulary's tokens; all others have probability 0."""

    ids: NDArray[np.int64]  # [n], ascending
    probs: NDArray[np.float64]  # [n], positive, sum 1

    def of(self, token: int) -> float:
        """The token's probability."""
        i = int(self.ids.searchsorted(token))
        return float(self.probs[i]) if i < len(self.ids) and self.ids[i] == token else 0.0

    def without(self, tokens: list[int]) -> Distribution:
        """The distribution given that it is none of `tokens`, of which it must not consist."""
        kept = ~np.isin(self.ids, tokens)
        return self if kept.all() else Distribution(self.ids[kept], self.probs[kept] / self.probs[kept].sum())


def certain(token: int) -> Distribution:
    """All on one token."""
    return Distribution(np.array([token]), np.ones(1))


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

    def child(self, node: int, token: int) -> int | None:
        """The child of `node` that carries `token`, if there is one."""
        if self.parents is None:
            return node + 1 if node + 1 < len(self.tokens) and self.tokens[node + 1] == token else None
        return next((child for child in self.children(node) if self.tokens[child] == token), None)

    def parent(self, node: int) -> int:
        """The node before `node`; -1 is the context's last token."""
        return node - 1 if self.parents is None else self.parents[node]

    def trunk(self) -> list[int]:
        """The nodes along first children, from the root down."""
        found = list[int]()
        while (child := next(self.children(found[-1] if found else -1), None)) is not None:
            found.append(child)
        return found

    def first(self, n: int) -> Draft:
        """Only its first `n` nodes."""
        if n >= len(self.tokens):
            return self
        return Draft(self.tokens[:n], self.parents and self.parents[:n], self.probs and self.probs[:n])


NO_DRAFT = Draft()


def merge(drafts: Sequence[Draft]) -> Draft:
    """One tree of several drafts, in which shared beginnings are one path.

    A token that an earlier sibling carries is proposed once. A later sibling is therefore known to be none of the
    earlier, and what it was sampled from is conditioned on that: so each is a fair proposal for the residual that the
    earlier ones leave.
    """
    if len(drafts) < 2:
        return drafts[0] if drafts else NO_DRAFT
    tokens, parents, probs = list[int](), list[int](), list[Distribution]()
    nodes: dict[tuple[int, int], int] = {}  # (parent, token) -> node
    for draft in drafts:
        places = [-1]  # of this draft's nodes in the tree, after the root's
        for i, token in enumerate(draft.tokens):
            key = places[draft.parent(i) + 1], token
            if key not in nodes:
                siblings = [tokens[node] for node, parent in enumerate(parents) if parent == key[0]]
                nodes[key] = len(tokens)
                tokens.append(token)
                parents.append(key[0])
                probs.append((draft.probs[i] if draft.probs else certain(token)).without(siblings))
            places.append(nodes[key])
    return Draft(tuple(tokens), tuple(parents), tuple(probs))


# What is made in every step is a named tuple: that takes a third of a frozen dataclass's time.
class Pick(NamedTuple):
    """A drafter's choice of one token by the reply's own sampling rule."""

    token: int
    confidence: (
        float  # probability of the likeliest token: known before the token is drawn, so stopping on it is lossless
    )
    distribution: Distribution | None  # what `token` was drawn from, where the rejection rule needs it
    others: tuple[int, ...] = ()  # the next best tokens, best first


UNSAID = -1


class GoOn(Protocol):
    """Asked with the confidence of a drafter's next token: is it worth drafting?"""

    def __call__(self, confidence: float, token: int = UNSAID) -> bool:
        """Naming the token too lets it be scored even if it is declined."""


def always() -> bool:
    """The answer of one who need not save."""
    return True


class Budget(NamedTuple):
    """What a drafter may spend on one proposal, and how it chooses a token from its own logits."""

    max_k: int
    go_on: GoOn
    pick: Callable[
        [Logits, Path, int], Pick
    ]  # (logits row, tokens drafted before it, number of next best tokens) -> choice
    is_worth_drafting: Callable[[], bool] = always  # before its confidence is known: is the next token worth its time?
    branches: int = 0  # side branches wanted at each drafted token
    forced: Callable[[], Path] = tuple  # the tokens that the reply's grammar leaves no choice about


class Drafter:
    """Proposes nothing, so decoding is plain. Subclasses guess."""

    name = "none"
    is_free = False  # costs so little that it may be asked on every step
    has_passes = False  # each of its tokens takes a pass of a model

    def propose(self, context: Tokens, budget: Budget) -> Draft:
        """At most `budget.max_k` tokens that may follow `context` [n]."""
        return NO_DRAFT

    def observe(self, draft: Draft, logits: Logits) -> None:
        """Sees the target's logits [1 + len(draft), n_vocab] of a step, whoever drafted; they are valid until it
        returns.
        """

    def begin(self, context: Tokens, expected: Sequence[int]) -> None:
        """A reply to `context` [n] begins; `expected` are the tokens that the caller thinks it will have, if any."""

    def finish(self, context: Tokens, n_prompt: int) -> None:
        """A reply has ended, or was broken off: it is what follows the first `n_prompt` tokens of `context` [n]."""

    def recall(self, context: Tokens) -> None:
        """The reply whose `context` [n] this is goes on, after another one's steps."""

    def n_missing(self, context: Tokens) -> int:
        """How many tokens of `context` it must take in before it can guess what follows."""
        return 0

    def take_in(self, context: Tokens) -> None:
        """Makes up for what is missing of `context`."""

    def close(self) -> None:
        """Frees what the drafter holds."""
