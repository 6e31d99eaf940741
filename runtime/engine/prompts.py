"""Stored prompts of an engine: the prompt cache on disk, and files that the user names."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from runtime.core.errors import SettingsError
from runtime.drafters.model import seen
from runtime.engine import conversation_files
from runtime.engine.ahead import answering
from runtime.engine.core import EngineCore
from runtime.engine.prefixes import DraftPrefixes, Prefixes
from runtime.engine.stored_states import StoredStates
from runtime.loading.loaded_pair import LoadedPair
from runtime.loading.planning import MODEL
from runtime.loading.prompt_cache import model_key, opened_draft_store, opened_store


class KeptPrompts:
    """The stored prompts of a loaded pair."""

    def __init__(self, loaded: LoadedPair, core: EngineCore) -> None:
        self._loaded, self._core = loaded, core
        if store := opened_store(loaded):
            states = StoredStates(store, self._is_busy)
            core.prefixes = Prefixes(loaded.backend, states, loaded.exactness.is_exact, self._of_draft())

    def _is_busy(self) -> bool:
        return not self._core.is_idle

    def _of_draft(self) -> DraftPrefixes | None:
        """Return the stored prompts of the draft model; None if there is none, or another kind of draft."""
        draft, store = self._loaded.draft, opened_draft_store(self._loaded)
        if draft is None or store is None:
            return None
        n_seen = draft.backend.n_ctx - self._loaded.options.max_k

        def token_seconds() -> float:
            states = self._core.decoder.controller.states
            return states[MODEL].prefill_seconds if MODEL in states else 0.0

        return DraftPrefixes(draft, StoredStates(store, self._is_busy), partial(seen, n_seen=n_seen), token_seconds)

    def keep(self) -> bool:
        """Begin to store a conversation while the engine is idle. Return whether more may follow."""
        is_calm = self._core.decoder.active.memory_level == "OK"
        return is_calm and self._core.prefixes is not None and self._core.prefixes.keep()

    def handle(self, action: str, number: int, path: str) -> tuple[int, int]:
        """See `Engine.conversation`."""
        if answering((*self._core.preparing, *self._core.scheduler.all)):
            raise SettingsError("A reply is being generated. Try again when it has ended.")
        if action == "save":
            return conversation_files.save(self._loaded.backend, number, Path(path), model_key(self._loaded))
        if action == "restore":
            return conversation_files.restore(self._loaded.backend, Path(path), model_key(self._loaded))
        return conversation_files.erase(self._loaded.backend, number)

    def close(self, on_progress: Callable[[], object]) -> None:
        """Store the conversations that are worth it; see Prefixes."""
        if self._core.prefixes:
            self._core.prefixes.close(on_progress)
