"""The states of one model on disk: which conversations are worth storing, and which state is faster than prefill.

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

from runtime.backends.llama import LlamaBackend
from runtime.backends.stored.prefix_index import Entry
from runtime.backends.stored.prefix_store import PrefixStore
from runtime.backends.stored.saved_states import SavedState
from runtime.core.draft import NO_TOKEN, Adapters, Tokens


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
