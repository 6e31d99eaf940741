"""The permitted widths of a target's passes, from what its self-test found. Runs no pass."""

from __future__ import annotations

import sys

from runtime.backends.llama import LlamaBackend
from runtime.loading.drafters import shared_passes
from runtime.loading.exactness import Exactness
from runtime.speculative.control.reasons import Reason
from runtime.speculative.target import Sharing, TargetPasses

INEXACT = (
    "passes over several rows round differently from plain decode here, so greedy and seeded replies use plain decode"
)


def target_passes(backend: LlamaBackend, found: Exactness, is_fast: bool, promise: str) -> TargetPasses:
    """Return the passes of a target, of which these are exact; `is_fast` allows all. `promise` is what the user may do
    about replies without drafts, as a clause.
    """

    def exact_rows(n_context: int) -> int:
        return found.rows_at(n_context, backend.n_ctx, backend.n_before)

    is_padded = found.padded and not is_fast  # otherwise the position does not matter
    width = sys.maxsize if is_fast else found.width
    passes = TargetPasses(backend, width, sharing(backend, found, is_fast), exact_rows if is_padded else None)
    passes.is_exact = found.is_exact
    passes.inexact = Reason("exactness", f"{INEXACT}; {promise}")
    return passes


def sharing(backend: LlamaBackend, found: Exactness, is_fast: bool) -> Sharing | None:
    """Return the rules for shared passes of several replies; None where replies have to take turns."""
    shared = shared_passes(backend)
    if shared is None:
        return None
    is_any = is_fast or (found.is_exact and found.together)
    return Sharing(shared, sys.maxsize if is_any else found.width if found.together else 1)
