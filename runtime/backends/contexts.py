"""Which kind of context a model gets. Knows the kinds; how each goes back in its text is its own."""

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
    """The context that the model's architecture needs; a frugal one keeps little to go back with. Several seats are for
    conversations that share passes, where the architecture allows that and no trees are wanted.

    Trees need a cache that can be cut anywhere; elsewhere `can_branch` asks in vain. Raises ModelError.
    """
    if model.is_recurrent:
        return RecurrentBackend(model, n_ctx, n_rows, n_batch, 0 if is_frugal else n_rows - 1)
    if is_frugal and model.window:
        return WindowedBackend(model, n_ctx, n_rows, n_batch)
    if n_seats > 1 and not can_branch:
        return SharedBackend(model, n_ctx, n_rows, n_batch, n_seats)
    return LlamaBackend(model, n_ctx, n_rows, n_batch, can_branch)
