"""Chooses the kind of context for a model. Knows the kinds; does not know how each one rewinds."""

from __future__ import annotations

from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.backends.recurrent import RecurrentBackend
from runtime.backends.shared import SharedBackend
from runtime.backends.windowed import WindowedBackend


def open_backend(
    model: LlamaModel,
    n_ctx: int,
    n_rows: int,
    n_batch: int,
    can_branch: bool = False,
    is_frugal: bool = False,
    n_seats: int = 1,
) -> LlamaBackend:
    """Open the context that the model's architecture needs; a frugal one keeps little to rewind with.

    Several seats are for conversations that share passes, where the architecture allows it and no trees are used. Trees
    need a cache that can be truncated anywhere; elsewhere `can_branch` has no effect. Raises ModelError.
    """
    if model.is_recurrent:
        return RecurrentBackend(model, n_ctx, n_rows, n_batch, 0 if is_frugal else n_rows - 1)
    if is_frugal and model.window:
        return WindowedBackend(model, n_ctx, n_rows, n_batch)
    if n_seats > 1 and not can_branch:
        return SharedBackend(model, n_ctx, n_rows, n_batch, n_seats)
    return LlamaBackend(model, n_ctx, n_rows, n_batch, can_branch)
