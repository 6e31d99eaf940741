"""The facts of a stand-in engine."""

from __future__ import annotations

from dataclasses import replace

from runtime.engine import EngineFacts
from runtime.loading.exactness import Exactness

USUAL = EngineFacts(
    n_ctx=256,
    n_ctx_train=256,
    n_vocab=100,
    n_embd=8,
    n_bytes=2**20,
    template="scripted",
    fit="everything fits: it needs 1 MiB",
    left_out="",
    exactness=Exactness(1, 1),
    is_reproducible=True,
    can_draft=True,
    could_be_exact=False,
    has_gpu=False,
    can_infill=False,
)


def facts(**changes: object) -> EngineFacts:
    """Return the usual facts with some changed."""
    return replace(USUAL, **changes)  # type: ignore[arg-type]
