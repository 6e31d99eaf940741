"""How much of a cached conversation another text may reuse. Numbers only."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.core.draft import Tokens, common_prefix


@dataclass(slots=True)
class Reuse:
    """Numbers of leading tokens of a cached conversation.

    `n_asked` were part of a request, later ones are drafts that may have been rejected. `n_exact` were computed as for
    a reply with a seed: read in whole tiles, and decoded in passes that round as plain decode does. `n_whole` were
    restored together, so the conversation cannot be truncated to fewer.
    """

    n_asked: int = 0
    n_exact: int = 0
    n_whole: int = 0

    def set(self, n_asked: int, n_exact: int, n_whole: int = 0) -> None:
        """Set all three."""
        self.n_asked, self.n_exact, self.n_whole = n_asked, n_exact, n_whole

    def cut(self, n: int) -> None:
        """Note that the conversation was truncated to `n` tokens."""
        self.n_exact, self.n_whole = min(self.n_exact, n), min(self.n_whole, n)

    def extend(self, start: int, n_asked: int, n: int, is_exact: bool) -> None:
        """Note that the tokens from `start` to `n` were decoded, `n_asked` of them for a request."""
        self.n_exact = n if is_exact and start <= self.n_exact else min(self.n_exact, start)
        self.n_asked = n_asked

    def shared(self, held: Tokens, context: Tokens, grain: int) -> int:
        """Return the number of leading tokens of `context[:-1]` that can be reused of the cached ones."""
        n = self.usable(common_prefix(held, context[:-1]), grain)
        return n if n >= self.n_whole else 0

    def usable(self, n_shared: int, grain: int) -> int:
        """Return how many of `n_shared` tokens can be reused: with a `grain` of 1 all.

        Otherwise only those that were computed exactly: all of them if the new text continues the cached one, else a
        multiple of `grain`.
        """
        if grain == 1:
            return n_shared
        n = min(n_shared, self.n_exact)
        return n if n >= self.n_asked - 1 else n - n % grain
