"""How a prompt is read: in which pieces, which of them others' passes may take along, and which one says a token too.

Knows the loop and token ids.
"""

from __future__ import annotations

from collections.abc import Iterator

from runtime.core.draft import Tokens
from runtime.loading.exactness import Exactness
from runtime.speculative.loop import SpecLoop
from runtime.speculative.step import RequestState

PREFILL = 256  # tokens decoded between two looks at whether the reply is still wanted


class PromptReading:
    """Of `tokens` [n], all but the last, which is the first step's; those after the first `n_prompt` had been said."""

    def __init__(
        self, loop: SpecLoop, request: RequestState, tokens: Tokens, n_prompt: int, exactness: Exactness | None
    ) -> None:
        self._loop, self._request, self._exactness = loop, request, exactness
        self.tokens, self._n_prompt, self.total = tokens, n_prompt, len(tokens) - 1
        self.n_cached = min(loop.n_cached(tokens), n_prompt - 1)

    @property
    def _is_any(self) -> bool:
        """May it be read in any pieces, as they all round alike?"""
        return self._exactness is None or self._exactness.is_exact

    @property
    def is_lost(self) -> bool:
        """Does the cache lack what was read before?"""
        return self._loop.n_cached(self.tokens) < self.total

    def unread(self) -> Tokens | None:
        """What is read before the reply begins, where others' passes may take part in it."""
        return self.tokens[: self.total] if self._is_any and self.is_lost else None

    def n_late(self, end: int) -> int:
        """Tokens of a piece up to `end` that the first step's pass is to read: of the last piece, where the reply says
        the same however its prompt is read and others can wait for so much.
        """
        if end < self.total or not self._is_any:
            return 0
        n = max(0, self.total - self._loop.n_cached(self.tokens))
        return n if n <= self._loop.piece(self._request, len(self.tokens), n) else 0

    def is_short(self, n_ctx: int) -> bool:
        """Is it no more than one piece?"""
        return next(self._borders(n_ctx)) == self.total

    def pieces(self, n_ctx: int) -> Iterator[int]:
        """Where the pieces end: at the borders, and at any token in between where others cannot wait for so much and
        rounding does not depend on it.
        """
        n_read = self.n_cached
        for border in self._borders(n_ctx):
            while self._is_any:
                n_read = max(n_read, self._loop.n_cached(self.tokens))  # others' passes read parts of it
                n = self._loop.piece(self._request, len(self.tokens), border - n_read)
                if n >= border - n_read:
                    break
                yield (n_read := n_read + n)
            yield border
            n_read = border

    def _borders(self, n_ctx: int) -> Iterator[int]:
        """They do not depend on how much drafts had left in the cache. What a reply had said already is read as it was
        made, in passes no wider than those that are exact.
        """
        asked, exactness = self._n_prompt - 1, self._exactness
        first = (self.n_cached // PREFILL + 1) * PREFILL
        yield from range(first, asked, PREFILL)
        yield asked
        while asked < self.total:
            asked += PREFILL if self._is_any or exactness is None else exactness.rows_at(asked + 1, n_ctx)
            yield min(asked, self.total)
