"""The tokens that constraints allow: what a mask is, several as one, and the mask of a minimum length.

Knows token ids; knows no grammar.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from runtime.core.draft import Logits, Path, Tokens


class TokenMask(Protocol):
    """The tokens that a constraint such as a grammar allows after the reply so far."""

    def begin(self, reply: Tokens) -> None:
        """Set the reply's tokens [n]."""

    def allowed(self, path: Path) -> NDArray[np.bool_]:
        """Return the mask [n_vocab] of tokens that may follow the reply and the tentative tokens of `path`."""

    def forced(self) -> Path:
        """Return the tokens that must come next, as far as known."""

    def choice(self, path: Path) -> CallChoice | None:
        """Return what tokens mean that are not allowed after `path`, where a call is complete; None elsewhere."""


class CallChoice(NamedTuple):
    """What tokens mean after a complete call: those in `begins` [n] another one, all others the end."""

    ends: NDArray[np.bool_]  # [n_vocab] tokens that end the reply
    begins: NDArray[np.int64]


class LengthMask:
    """Forbids the tokens that end a reply until it has `least` tokens. Implements TokenMask."""

    def __init__(self, least: int, ends: Iterable[int], n_vocab: int) -> None:
        self._least, self._n = least, 0
        self._anything = np.ones(n_vocab, dtype=np.bool_)
        self._no_end = self._anything.copy()
        self._no_end[list(ends)] = False

    def begin(self, reply: Tokens) -> None:
        """Set the reply's tokens [n]."""
        self._n = len(reply)

    def allowed(self, path: Path) -> NDArray[np.bool_]:
        """Return the mask [n_vocab] of tokens that may follow the reply and `path`."""
        return self._no_end if self._n + len(path) < self._least else self._anything

    def forced(self) -> Path:
        """Return nothing, because no token must come next."""
        return ()

    def choice(self, path: Path) -> None:
        """Return None."""


class SharedMask:
    """Allows the tokens that all its masks allow; if there are none, those of the last mask. Implements TokenMask."""

    def __init__(self, masks: Sequence[TokenMask]) -> None:
        self._masks = masks

    def begin(self, reply: Tokens) -> None:
        """Set the reply's tokens [n]."""
        for mask in self._masks:
            mask.begin(reply)

    def allowed(self, path: Path) -> NDArray[np.bool_]:
        """Return the mask [n_vocab] of tokens that may follow the reply and `path`."""
        masks = [mask.allowed(path) for mask in self._masks]
        found: NDArray[np.bool_] = np.logical_and.reduce(masks)
        return found if found.any() else masks[-1]

    def forced(self) -> Path:
        """Return the forced tokens of the first mask that has any."""
        return next(filter(None, (mask.forced() for mask in self._masks)), ())

    def choice(self, path: Path) -> CallChoice | None:
        """Return the choice of the first mask that has one."""
        return next(filter(None, (mask.choice(path) for mask in self._masks)), None)


def together(masks: Sequence[TokenMask]) -> TokenMask | None:
    """Return all masks as one, or None if there are none."""
    return SharedMask(masks) if len(masks) > 1 else next(iter(masks), None)


def keep_allowed(row: Logits, mask: TokenMask, path: Path) -> None:
    """Set the logits of tokens that are not allowed after `path` to minus infinity in `row` [n_vocab].

    After a complete call their probability is that of the likeliest token with the same meaning.
    """
    allowed, choice = mask.allowed(path)[: len(row)], mask.choice(path)
    if choice is None:
        row[~allowed] = -np.inf
        return
    begins = np.zeros_like(allowed)
    begins[choice.begins[choice.begins < len(row)]] = True
    others = {True: row[begins & ~allowed], False: row[~begins & ~allowed]}
    row[~allowed] = -np.inf
    for is_call, logits in others.items():
        give(row, allowed & (choice.ends[: len(row)] != is_call), logits)


def give(row: Logits, to: NDArray[np.bool_], logits: Logits) -> None:
    """Add the probability of `logits` [n] to that of the likeliest token of `to` [n_vocab] in `row`, if it has any."""
    most, likeliest = logits.max(initial=-np.inf), np.flatnonzero(to)
    if most == -np.inf or not likeliest.size:
        return
    token = likeliest[row[likeliest].argmax()]
    row[token] = np.logaddexp(row[token], most + np.log(np.exp(logits - most).sum(dtype=np.float64)))
