"""The states of one model on disk, the prompt cache: which conversations are worth storing, and which state is faster
than prefill; where a pair has them, their size and removal.

A thread of low priority writes them. Knows tokens and seconds; the store knows files.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b

from runtime.backends import library
from runtime.backends.llama import LlamaBackend
from runtime.backends.stored.prefix_index import Entry
from runtime.backends.stored.prefix_store import PrefixStore, folder, forget, size
from runtime.backends.stored.saved_states import SavedState
from runtime.backends.translated import own_context
from runtime.core.draft import NO_TOKEN, Adapters, Tokens
from runtime.loading.loaded_pair import LoadedPair
from runtime.loading.planning import MODEL
from runtime.loading.profile_cache import fingerprint

__all__ = ["folder", "forget", "opened_draft_store", "opened_store", "stored_bytes"]


@dataclass(frozen=True, slots=True)
class Worth:
    """Thresholds for storing and loading a state."""

    seconds: float = 2.0  # prefill time from which a state is stored
    new_share: float = 0.125  # new fraction of a state to store it: else a long conversation is written at every turn
    gain: float = 2.0  # minimum ratio of prefill time to loading time for loading a state
    copy_rate: float = 2e9  # bytes per second at which a state is copied into the context
    wait: float = 0.005  # seconds that the loop waits for a state: finding that there is none takes less


THRESHOLDS = Worth()

BUSY_PAUSE = 0.05  # seconds between two written chunks while replies are generated

FETCHED = 4  # states from disk that wait for their sequence's turn


class StoredStates:
    """The stored states of one model's contexts. `is_busy`: whether replies are generated."""

    def __init__(self, store: PrefixStore, is_busy: Callable[[], bool]) -> None:
        self.store, self._is_busy = store, is_busy
        self.token_seconds = 0.0  # prefill seconds per token; 0: unknown
        self.on_progress: Callable[[], object] | None = None  # called for each written part when the engine closes
        self._tried = set[bytes]()  # hashes of conversations that were considered for storing
        self._writer: threading.Thread | None = None

    def read(
        self, tokens: Tokens, n_cached: int, n_ctx: int, exact: bool, is_pure: bool, adapters: Adapters = ()
    ) -> SavedState | None:
        """Return the state with the longest prefix of a prompt [n] read with these adapters, if loading it is faster
        than prefill of what the cache of `n_ctx` tokens lacks; else None. `is_pure`: whether all its cells must come
        from prefill.
        """
        entry = self.store.find(tokens, is_pure, adapters)
        if entry is None or len(entry.saved.tokens) >= n_ctx:
            return None
        return self.store.read(entry) if self._pays(entry, entry.saved.n_shared(tokens, exact) - n_cached) else None

    def _pays(self, entry: Entry, n_new: int) -> bool:
        cost = entry.n_bytes / self.store.bytes_per_second + entry.n_bytes / THRESHOLDS.copy_rate
        return n_new * (self.token_seconds or entry.token_seconds) > THRESHOLDS.gain * cost

    @property
    def is_writing(self) -> bool:
        """Whether a state is being written."""
        return self._writer is not None and self._writer.is_alive()

    def is_worth(self, tokens: Tokens, adapters: Adapters = ()) -> bool:
        """Return whether a conversation of these tokens [n] and adapters is worth storing; once for each."""
        n, seconds = len(tokens), self.token_seconds
        known = blake2b(repr(adapters).encode() + tokens.tobytes(), digest_size=16).digest()
        if not self.store.is_writable or n * seconds < THRESHOLDS.seconds or known in self._tried:
            return False
        if not n or (tokens == NO_TOKEN).any():  # empty, or part of a stored one
            return False
        self._tried.add(known)
        n_new = n - self.store.n_stored(tokens, adapters)
        return n_new * seconds >= THRESHOLDS.seconds and n_new >= THRESHOLDS.new_share * n

    def write(self, state: SavedState) -> None:
        """Begin to write a state."""

        def write() -> None:
            if sys.platform == "linux":  # other systems have no priority per thread here
                with suppress(OSError):
                    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
            self.store.write(state, self.token_seconds, self._pause)

        self._writer = threading.Thread(target=write, name="prompt writer", daemon=True)
        self._writer.start()

    def _pause(self) -> None:
        if self.on_progress is not None:
            self.on_progress()
        elif self._is_busy():
            time.sleep(BUSY_PAUSE)

    def wait(self) -> None:
        """Wait until nothing is being written."""
        if self._writer is not None:
            self._writer.join()


def put(state: SavedState | None, backend: LlamaBackend) -> None:
    """Put a state that was read from disk where the next pass of its conversation finds it.

    May be called on any thread, so the list is replaced and not changed.
    """
    if state is not None:
        backend.saved.fetched = [*backend.saved.fetched[1 - FETCHED :], state]


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
    plan = loaded.wanted.plan
    layers = plan.n_gpu_layers if plan and library.has_gpu() else 0
    passes = backend.n_batch, backend.pass_rows, backend.saved.grain
    kind = type(backend).__name__, backend.model.cache_types, options.exact, library.has_gpu(), layers
    return fingerprint(loaded.pair.target, "prompts", library.version(), *kind, *passes)
