"""The target of a decoder: its passes, and how wide they may be. Knows a backend; chooses no draft."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from runtime.core.backend import Backend, SharedPasses
from runtime.core.draft import NO_DRAFT, Draft, Logits, Tokens
from runtime.speculative.control.reasons import Reason
from runtime.speculative.step import StepInput, Widths


class Sharing(NamedTuple):
    """A backend whose passes several sequences can share; those of up to `exact_rows` rows round as alone."""

    passes: SharedPasses
    exact_rows: int


class TargetPasses:
    """`exact_rows`: rows of a pass up to which it rounds as plain decode does; `rows_at` says the same after so many
    tokens.
    """

    def __init__(
        self,
        backend: Backend,
        exact_rows: int = sys.maxsize,
        shared: Sharing | None = None,
        rows_at: Callable[[int], int] | None = None,
    ) -> None:
        self.backend, self.exact_rows = backend, exact_rows
        self.shared = shared  # None: each sequence has passes of its own
        self._rows_at = rows_at

    @property
    def is_exact_only(self) -> bool:
        """Are replies with a seed kept to passes that round as plain decode does?"""
        return self.exact_rows < sys.maxsize

    def forward(self, asked: Sequence[tuple[Tokens, Draft]]) -> list[Logits]:
        """Return the logits of each of these contexts and drafts, from one pass."""
        if self.shared is None or len(asked) == 1:
            return [self.backend.forward(*each) for each in asked]
        return self.shared.passes.forward_all(asked)

    def read(self, prompts: Sequence[Tokens]) -> None:
        """Read prompts [n], as far as they were not read, in one pass."""
        self.forward([(each, NO_DRAFT) for each in prompts])

    def n_unread(self, prompts: Sequence[Tokens]) -> int:
        """Return the number of tokens that a pass over these prompts decodes."""
        return sum(len(each) - self.backend.n_cached(each) for each in prompts)

    def exact_rows_at(self, n_context: int) -> int:
        """Return the number of rows up to which a pass after so many tokens rounds as plain decode does."""
        return self._rows_at(n_context) if self._rows_at else self.exact_rows

    def most_drafted(self, widths: Widths, n_context: int, most: int) -> int:
        """Return how many draft tokens, up to `most`, the pass of a sequence may have after so many tokens."""
        return min(most, self.exact_rows_at(n_context) - 1) if widths is Widths.EXACT else most

    def room(self, batch: Sequence[StepInput], most: int) -> int:
        """Return how many draft tokens, up to `most`, a pass may have over all its sequences."""
        if self.shared is None or len(batch) == 1 or all(each.state.widths is not Widths.EXACT for each in batch):
            return most
        return max(0, min(most, self.shared.exact_rows - len(batch)))

    def n_left(self, n_context: int) -> int:
        """Return how many tokens after so many can be drafted, as rejected ones can be dropped cheaply."""
        return self.backend.n_rewindable - n_context

    def why_no_room(self, n_context: int) -> Reason | None:
        """Return why nothing can be drafted after so many tokens, where there is more to say than that the reply
        ends.
        """
        n = self.backend.n_rewindable
        if n_context < n or n in (0, self.backend.n_ctx):
            return None
        return Reason("memory", f"drafts end at {n} tokens, because sliding windows are kept short for want of memory")
