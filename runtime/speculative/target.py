"""The target of a decoder: its passes and their permitted widths. Knows a backend; chooses no draft."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from runtime.core.backend import AdaptedBackend, SharedPasses
from runtime.core.draft import Adapters, Logits, PassInput, Tokens
from runtime.speculative.control.reasons import Reason
from runtime.speculative.step import StepInput, Widths

INEXACT = Reason("exactness", "passes over several rows round differently from plain decode here")


class Sharing(NamedTuple):
    """A backend whose passes several sequences can share; passes of up to `exact_rows` rows are exact."""

    passes: SharedPasses
    exact_rows: int


class TargetPasses:
    """Passes of the target model.

    `exact_rows` is the width up to which a pass rounds as plain decode does; `rows_at` returns it by context length.
    Where that differs with LoRA adapters on, `adapted` has their limits.
    """

    def __init__(
        self,
        backend: AdaptedBackend,
        exact_rows: int = sys.maxsize,
        shared: Sharing | None = None,
        rows_at: Callable[[int], int] | None = None,
    ) -> None:
        self.backend, self.exact_rows = backend, exact_rows
        self.shared = shared  # None: sequences cannot share passes
        self._rows_at = rows_at
        self.is_exact = exact_rows == sys.maxsize  # whether all its passes are, those that read prompts too
        self.adapted: TargetPasses | None = None
        self.inexact = INEXACT  # reason for plain decode with Widths.EXACT, if wider passes round differently

    def of(self, adapters: Adapters) -> TargetPasses:
        """Return the passes with the limits of these adapters."""
        return self.adapted if adapters and self.adapted else self

    @property
    def is_exact_only(self) -> bool:
        """Whether replies with a seed are limited to passes that round as plain decode does."""
        return self.exact_rows < sys.maxsize

    def forward(self, asked: Sequence[PassInput]) -> list[Logits]:
        """Return the logits for each of these contexts and drafts, which have the same adapters, from one pass."""
        self.backend.use(asked[0].adapters)
        if self.shared is None or len(asked) == 1:
            return [self.backend.forward(each.context, each.draft, each.exact) for each in asked]
        return self.shared.passes.forward_all(asked)

    def n_unread(self, prompts: Sequence[PassInput]) -> int:
        """Return the number of tokens of these prompts to prefill."""
        return sum(len(each.context) - self.n_cached(each.context, each.exact, each.adapters) for each in prompts)

    def n_cached(self, context: Tokens, exact: bool, adapters: Adapters) -> int:
        """Return the number of leading tokens of `context` that are cached with these adapters."""
        self.backend.use(adapters)
        return self.backend.n_cached(context, exact)

    def resume(self, context: Tokens, exact: bool, adapters: Adapters) -> None:
        """Load the cached conversation that `context` continues with these adapters."""
        self.backend.use(adapters)
        self.backend.resume(context, exact)

    def exact_rows_at(self, n_context: int) -> int:
        """Return the number of rows up to which a pass at this context length rounds as plain decode does."""
        return self._rows_at(n_context) if self._rows_at else self.exact_rows

    def most_drafted(self, widths: Widths, n_context: int, most: int) -> int:
        """Return the number of draft tokens, up to `most`, that a sequence's pass may have at this context length."""
        return min(most, self.exact_rows_at(n_context) - 1) if widths is Widths.EXACT else most

    def room(self, batch: Sequence[StepInput], most: int) -> int:
        """Return the number of draft tokens, up to `most`, that a pass may have over all its sequences."""
        if self.shared is None or len(batch) == 1 or all(each.state.widths is not Widths.EXACT for each in batch):
            return most
        return max(0, min(most, self.shared.exact_rows - len(batch)))

    def n_left(self, n_context: int) -> int:
        """Return the number of tokens that can still be drafted at this context length, because rejected tokens are
        cheap to drop only up to `n_rewindable`.
        """
        return self.backend.n_rewindable - n_context

    def why_no_room(self, n_context: int) -> Reason | None:
        """Return why nothing can be drafted at this context length, if the cause is the backend's memory for sliding
        windows; else None.
        """
        n = self.backend.n_rewindable
        if n_context < n or n in (0, self.backend.n_ctx):
            return None
        return Reason("memory", f"drafts end at {n} tokens, because sliding windows are kept short for lack of memory")
