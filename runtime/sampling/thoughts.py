"""Limits the length of a reply's reasoning: after a number of its tokens, only the mark that ends it may follow.

The mask depends on the reply's tokens alone, so no seed, draft or stream changes it. Knows tokens by their bytes; knows
no model.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from runtime.core.draft import Path, Tokens

CHARACTER = 4  # bytes per character, at most
utf8 = getincrementaldecoder("utf8")


@dataclass(frozen=True, slots=True)
class ThoughtBudget:
    """At most `n_tokens` between the marks `begin` and `end`; `is_open`: the prompt contains `begin` already."""

    n_tokens: int
    begin: str
    end: str
    is_open: bool = False


class Thought(NamedTuple):
    """The state of a reply's reasoning."""

    is_inside: bool
    text: bytes = b""  # its last bytes, which may begin a mark
    n: int = 0  # number of its tokens
    n_closing: int = 0  # tokens of the forced closing mark so far
    is_over: bool = False  # or never began


class ThoughtMask:
    """The reasoning budget of one reply, queried token by token. Implements TokenMask."""

    def __init__(
        self, budget: ThoughtBudget, closing: Sequence[int], token_bytes: Callable[[int], bytes], n_vocab: int
    ) -> None:
        self._most, self._closing, self._token_bytes = budget.n_tokens, tuple(closing), token_bytes
        self._begin, self._end = budget.begin.encode(), budget.end.encode()
        self._anything = np.ones(n_vocab, dtype=np.bool_)
        self._n_seen, self._thought = 0, Thought(budget.is_open)

    def begin(self, reply: Tokens) -> None:
        """Set the reply's tokens [n], which extend those of the last call."""
        self._thought = self._after(self._thought, reply[self._n_seen :].tolist())
        self._n_seen = len(reply)

    def allowed(self, path: Path) -> NDArray[np.bool_]:
        """Return the mask [n_vocab] of tokens that may follow the reply and `path`."""
        thought = self._after(self._thought, path)
        if not self._must_close(thought):
            return self._anything
        only = np.zeros_like(self._anything)
        only[self._closing[thought.n_closing]] = True
        return only

    def forced(self) -> Path:
        """Return the rest of the closing mark, if it is forced."""
        return self._closing[self._thought.n_closing :] if self._must_close(self._thought) else ()

    def choice(self, path: Path) -> None:
        """Return None."""

    def _must_close(self, thought: Thought) -> bool:
        """Whether the budget is spent. An incomplete character is finished first."""
        if not thought.is_inside or thought.is_over or thought.n < self._most:
            return False
        return bool(thought.n_closing) or is_whole(thought.text)

    def _after(self, thought: Thought, tokens: Sequence[int]) -> Thought:
        for token in tokens:
            if thought.is_over:
                break
            thought = self._next(thought, token)
        return thought

    def _next(self, thought: Thought, token: int) -> Thought:
        if self._must_close(thought) and token == self._closing[thought.n_closing]:
            n = thought.n_closing + 1
            return thought._replace(n_closing=n, is_over=n == len(self._closing))
        text = thought.text + self._token_bytes(token)
        if thought.is_inside:
            return self._inside(text, thought.n + 1)
        stripped = text.lstrip()
        if stripped.startswith(self._begin):
            return self._inside(stripped.removeprefix(self._begin), 0)
        return Thought(False, text, is_over=not self._begin.startswith(stripped))

    def _inside(self, text: bytes, n: int) -> Thought:
        return Thought(True, text[-max(len(self._end), CHARACTER) :], n, is_over=self._end in text)


def is_whole(text: bytes) -> bool:
    """Whether the text does not end inside a character."""
    decoder = utf8("replace")
    decoder.decode(text)
    return not decoder.getstate()[0]
