"""Which kind of context a model gets. Knows the kinds; how each goes back in its text is its own."""

from __future__ import annotations

from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.backends.recurrent import RecurrentBackend
from runtime.backends.windowed import WindowedBackend


def open_backend(
    model: LlamaModel, n_ctx: int, n_rows: int, n_batch: int, can_branch: bool = False, is_frugal: bool = False
) -> LlamaBackend:
    """The context that the model's architecture needs; a frugal one keeps little to go back with.

    Trees need a cache that can be cut anywhere; elsewhere `can_branch` asks in vain. Raises ModelError.
    """
    if model.is_recurrent:
        return RecurrentBackend(model, n_ctx, n_rows, n_batch, 0 if is_frugal else n_rows - 1)
    if is_frugal and model.window:
        return WindowedBackend(model, n_ctx, n_rows, n_batch)
    return LlamaBackend(model, n_ctx, n_rows, n_batch, can_branch)
