"""Prompt cache on disk: decides which prompt states are stored, and when one is loaded instead of reading the prompt.

Threads read and write the states: they are written at low priority while the engine is idle, and read while other
replies go on. Knows tokens and seconds; the store knows files.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import blake2b

from runtime.backends.llama import LlamaBackend
from runtime.backends.prefix_index import Entry
from runtime.backends.prefix_store import PrefixStore
from runtime.backends.saved_states import SavedState
from runtime.core.draft import Tokens, common_prefix
from runtime.engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Worth:
    """Thresholds for storing and loading a state."""

    seconds: float = 2.0  # prefill time from which a state is stored
    new_share: float = 0.125  # new fraction of a state to store it: else a long conversation is written at every turn
    gain: float = 2.0  # minimum ratio of prefill time to loading time for loading a state
    copy_rate: float = 2e9  # bytes per second at which a state is copied into the context
    wait: float = 0.005  # seconds that the loop waits for a state: finding that there is none takes less


THRESHOLDS = Worth()
COUNTED = 64  # minimum prompt tokens for a measurement of prefill speed
BUSY_PAUSE = 0.05  # seconds between two written chunks while replies are generated
FETCHED = 4  # states from disk that wait for their sequence's turn
PROMPTS = 16  # recently read prompts that are remembered

log = logging.getLogger(__name__)


class Prefixes:
    """Stored prompts of one engine. `is_exact`: whether KV cells are the same in passes of any width."""

    def __init__(self, backend: LlamaBackend, store: PrefixStore, is_exact: bool, is_busy: Callable[[], bool]) -> None:
        self._backend, self._store, self._is_exact, self._is_busy = backend, store, is_exact, is_busy
        self._token_seconds = 0.0  # prefill seconds per token; 0: unknown
        self._read = deque[Tokens](maxlen=PROMPTS)  # prompts whose cells come from prefill, not from decoding
        self._tried = set[bytes]()  # hashes of conversations that were considered for storing
        self._writer: threading.Thread | None = None
        self._on_progress: Callable[[], object] | None = None  # set when it closes

    def fetch(self, sequence: Sequence) -> bool:
        """Read the stored state with the longest prefix of a new sequence's prompt, if that is faster than prefill.

        Returns whether that has ended, with what was found in the backend; else it goes on in a thread: ask again.
        """
        if sequence.stored is None:
            self._begin(sequence)
        if (stored := sequence.stored) is None or not stored.done():
            return False
        state, sequence.stored = stored.result(), None
        if state is not None:
            del self._backend.saved.fetched[: 1 - FETCHED]
            self._backend.saved.fetched.append(state)
            self._read.append(state.tokens[: state.n_exact])
        return True

    def _begin(self, sequence: Sequence) -> None:
        tokens, exact = sequence.tokens.copy(), sequence.needs_exact_widths
        n_cached, stored = self._backend.n_cached(tokens, exact), Future[SavedState | None]()
        sequence.stored = stored

        def fetch() -> None:
            try:
                stored.set_result(self._found(tokens, exact, n_cached))
            except Exception:
                log.exception("A stored prompt could not be read.")
                stored.set_result(None)

        try:
            threading.Thread(target=fetch, name="prompt reader", daemon=True).start()
        except RuntimeError:  # the system has no thread left
            stored.set_result(None)
        wait((stored,), THRESHOLDS.wait)

    def _found(self, tokens: Tokens, exact: bool, n_cached: int) -> SavedState | None:
        """Return the stored state with the longest prefix of a prompt, of which the cache has `n_cached` tokens; None
        where prefill is faster.
        """
        entry = self._store.find(tokens, is_pure=not self._is_exact and exact)
        if entry is None or len(entry.saved.tokens) >= self._backend.n_ctx:
            return None
        return self._store.read(entry) if self._pays(entry, entry.saved.n_shared(tokens, exact) - n_cached) else None

    def _pays(self, entry: Entry, n_new: int) -> bool:
        cost = entry.n_bytes / self._store.bytes_per_second + entry.n_bytes / THRESHOLDS.copy_rate
        return n_new * (self._token_seconds or entry.token_seconds) > THRESHOLDS.gain * cost

    def note(self, sequence: Sequence) -> None:
        """Record the prompt and the prefill speed of a sequence that ends."""
        self._store.settle(self._backend.saved.refused, has_failed=sequence.finish_reason is None)
        stats = sequence.stats
        n_read = min(sequence.n_read, sequence.buffer.n_prompt - 1)
        if n_read - stats.cached_n >= COUNTED:
            self._token_seconds = stats.prompt_seconds / (n_read - stats.cached_n)
        tokens = sequence.tokens[:n_read]
        if n_read > 0 and (self._is_exact or self._point(tokens) >= min(stats.cached_n, n_read)):
            self._read.append(tokens.copy())

    def _point(self, tokens: Tokens) -> int:
        """Return the end of the last prompt of a conversation, from which another reply may be requested."""
        return max((common_prefix(each, tokens) for each in self._read), default=0)

    def keep(self) -> bool:
        """Begin to store the state of one conversation that is slow to read. Return whether more may follow."""
        self._backend.saved.fetched.clear()
        if self._writer is not None and self._writer.is_alive():
            return True
        for each in self._backend.conversations():
            if self._is_worth(each.tokens) and (state := each.copy(self._point(each.tokens))) is not None:
                self._write(state)
                return True
        return False

    def _is_worth(self, tokens: Tokens) -> bool:
        n, seconds, known = len(tokens), self._token_seconds, blake2b(tokens.tobytes(), digest_size=16).digest()
        if not self._store.is_writable or n * seconds < THRESHOLDS.seconds or known in self._tried:
            return False
        if not n or tokens.min() < 0:  # empty, or part of a stored one
            return False
        self._tried.add(known)
        n_new = n - self._store.n_stored(tokens)
        return n_new * seconds >= THRESHOLDS.seconds and n_new >= THRESHOLDS.new_share * n

    def _write(self, state: SavedState) -> None:
        n_exact = len(state.tokens) if self._is_exact else min(self._point(state.tokens), state.n_exact)
        facts = replace(state, n_exact=n_exact), self._token_seconds, self._pause

        def write() -> None:
            if sys.platform == "linux":  # other systems have no priority per thread here
                with suppress(OSError):
                    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
            self._store.write(*facts)

        self._writer = threading.Thread(target=write, name="prompt writer", daemon=True)
        self._writer.start()

    def _pause(self) -> None:
        if self._on_progress is not None:
            self._on_progress()
        elif self._is_busy():
            time.sleep(BUSY_PAUSE)

    def close(self, on_progress: Callable[[], object] = lambda: None) -> None:
        """Store the conversations that are worth it, and wait until they are written; a thread calls `on_progress` for
        each part.
        """
        self._on_progress = on_progress
        while self.keep():
            if self._writer is not None:
                self._writer.join()
