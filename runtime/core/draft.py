"""Drafts: the tokens proposed to follow a context, and the distributions they were sampled from.

Pure data; knows no model, no cache and no sampling rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int32]  # [n] token ids
Logits = NDArray[np.float32]  # [rows, n_vocab], or one row [n_vocab]
Path = tuple[int, ...]  # draft tokens after a context
Adapters = tuple[tuple[str, float], ...]  # (hash of a LoRA adapter's content, scale) in order; scales are not 0
NO_TOKEN = -1  # in place of one that is not known
SINKS = 4  # first tokens, the attention sinks: the paper finds four enough


@dataclass(frozen=True, slots=True)
class Distribution:
    """A sparse distribution over the vocabulary; tokens not listed have probability 0."""

    ids: NDArray[np.int64]  # [n], ascending
    probs: NDArray[np.float64]  # [n], positive, sum 1

    def of(self, token: int) -> float:
        """Return the probability of `token`."""
        i = int(self.ids.searchsorted(token))
        return float(self.probs[i]) if i < len(self.ids) and self.ids[i] == token else 0.0


def certain(token: int) -> Distribution:
    """Return the point mass on one token."""
    return Distribution(np.array([token]), np.ones(1))


@dataclass(frozen=True, slots=True)
class Draft:
    """Tokens proposed to follow a context: a chain, or a tree when `parents` is given.

    A node comes after its parent (`parents[i] < i`), and no two children of a node have the same token.
    """

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] | None = None  # node index, -1 = the context's last token; None = chain
    probs: tuple[Distribution, ...] | None = None  # the distribution of each token of a chain; None = point masses

    def __len__(self) -> int:
        return len(self.tokens)

    def children(self, node: int) -> Iterator[int]:
        """Yield the children of `node`, in order."""
        if self.parents is None:
            return iter(range(node + 1, min(node + 2, len(self.tokens))))
        return (child for child, parent in enumerate(self.parents) if parent == node)

    def child(self, node: int, token: int) -> int | None:
        """Return the child of `node` with this token, or None."""
        if self.parents is None:
            return node + 1 if node + 1 < len(self.tokens) and self.tokens[node + 1] == token else None
        return next((child for child in self.children(node) if self.tokens[child] == token), None)

    def parent(self, node: int) -> int:
        """Return the parent of `node`; -1 is the context's last token."""
        return node - 1 if self.parents is None else self.parents[node]

    def first(self, n: int) -> Draft:
        """Return the draft's first `n` nodes."""
        if n >= len(self.tokens):
            return self
        return Draft(self.tokens[:n], self.parents and self.parents[:n], self.probs and self.probs[:n])


NO_DRAFT = Draft()


def common_prefix(a: Tokens, b: Tokens) -> int:
    """Return the length of the common prefix of two arrays, which may be long."""
    n = min(len(a), len(b))
    same = a[:n] == b[:n]
    return n if same.all() else int(same.argmin())


def common_start(a: Sequence[int], b: Sequence[int]) -> int:
    """Return the length of the common prefix of two short tuples or lists, faster than with arrays."""
    n = 0
    for left, right in zip(a, b, strict=False):
        if left != right:
            break
        n += 1
    return n


def seen(context: Tokens, n_seen: int, n_whole: int | None = None) -> Tokens:
    """Return the part of `context` [n], of which it has `n_whole` tokens in all, that a draft model reads: the
    first tokens and the latest (StreamingLLM, arXiv 2309.17453).
    """
    n_skipped = skipped(len(context) if n_whole is None else n_whole, n_seen)
    return np.concatenate([context[:SINKS], context[SINKS + n_skipped :]]) if n_skipped else context


def skipped(n: int, n_seen: int) -> int:
    """Return the number of tokens after the sinks to leave out of a context of `n`, so that at most `n_seen` remain.

    It grows in steps of half of `n_seen`, because the remaining tokens must be read again whenever they shift.
    """
    step = max(1, n_seen // 2)
    return -(-max(0, n - n_seen) // step) * step


def usable(n_shared: int, n_asked: int, n_exact: int, grain: int) -> int:
    """Return how many of `n_shared` cached tokens can be reused: with a `grain` of 1 all.

    Otherwise only those that were computed exactly, the first `n_exact`: all of them if the new text continues the
    cached one, of which a request had `n_asked` tokens, else a multiple of `grain`.
    """
    if grain == 1:
        return n_shared
    n = min(n_shared, n_exact)
    return n if n >= n_asked - 1 else n - n % grain


class PassInput(NamedTuple):
    """Tokens to decode: a context and its draft, with these LoRA adapters, which are the same for all inputs of a pass.
    With `exact`, only cells that were computed exactly are reused.
    """

    context: Tokens
    draft: Draft = NO_DRAFT
    exact: bool = True
    adapters: Adapters = ()
