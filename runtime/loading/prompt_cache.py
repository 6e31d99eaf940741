"""The prompt cache on disk: the store for an open pair, its total size, and its removal."""

from __future__ import annotations

from runtime.backends import library
from runtime.backends.stored.prefix_store import PrefixStore, folder, forget, size
from runtime.backends.translated import own_context
from runtime.loading.loaded_pair import LoadedPair
from runtime.loading.planning import MODEL
from runtime.loading.profile_cache import fingerprint

__all__ = ["folder", "forget", "opened_draft_store", "opened_store", "stored_bytes"]


def stored_bytes() -> int:
    """Return the total bytes of all states."""
    return size(folder())


def opened_store(loaded: LoadedPair) -> PrefixStore | None:
    """Return the store of the pair's target; None where it is switched off, or where workers have layers of it."""
    options, backend = loaded.options, loaded.backend
    if not options.prompt_bytes or options.rpc:
        return None
    model = model_key(loaded)
    return PrefixStore(model, options.prompt_bytes, grain=backend.saved.grain)


def opened_draft_store(loaded: LoadedPair) -> PrefixStore | None:
    """Return the store of the pair's draft model; None where it has none, or drafts with something else."""
    options, draft = loaded.options, loaded.draft
    if not options.prompt_bytes or draft is None or loaded.drafts_by != MODEL:
        return None
    backend = own_context(draft.backend)
    kind = type(backend).__name__, backend.model.cache_types, library.has_gpu(), backend.n_batch
    path = loaded.pair.draft or loaded.pair.target
    return PrefixStore(fingerprint(path, "draft prompts", library.version(), *kind), options.prompt_bytes)


def model_key(loaded: LoadedPair) -> str:
    """Return a key of everything that makes a state valid."""
    options, backend = loaded.options, loaded.backend
    layers = loaded.plan.n_gpu_layers if loaded.plan and library.has_gpu() else 0
    passes = backend.n_batch, backend.pass_rows, backend.saved.grain
    kind = type(backend).__name__, backend.model.cache_types, options.exact, library.has_gpu(), layers
    return fingerprint(loaded.pair.target, "prompts", library.version(), *kind, *passes)
