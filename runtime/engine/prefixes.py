"""Prompt cache on disk: decides which prompt states are stored, and when one is loaded instead of reading the prompt.

States are written by a low-priority thread while the engine is idle. Knows tokens and seconds; the store knows files.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
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


THRESHOLDS = Worth()
COUNTED = 64  # minimum prompt tokens for a measurement of prefill speed
BUSY_PAUSE = 0.05  # seconds between two written chunks while replies are generated
FETCHED = 4  # states from disk that wait for their sequence's turn
PROMPTS = 16  # recently read prompts that are remembered


class Prefixes:
    """Stored prompts of one engine. `is_exact`: whether KV cells are the same in passes of any width."""

    def __init__(self, backend: LlamaBackend, store: PrefixStore, is_exact: bool, is_busy: Callable[[], bool]) -> None:
        self._backend, self._store, self._is_exact, self._is_busy = backend, store, is_exact, is_busy
        self._token_seconds = 0.0  # prefill seconds per token; 0: unknown
        self._read = deque[Tokens](maxlen=PROMPTS)  # prompts whose cells come from prefill, not from decoding
        self._tried = set[bytes]()  # hashes of conversations that were considered for storing
        self._writer: threading.Thread | None = None
        self._is_closing = False

    def fetch(self, sequence: Sequence) -> None:
        """Load the stored state with the longest prefix of a new sequence's prompt, if that is faster than prefill."""
        tokens, exact = sequence.tokens, sequence.needs_exact_widths
        is_pure = not self._is_exact and exact
        entry = self._store.find(tokens, is_pure)
        if entry is None or len(entry.saved.tokens) >= self._backend.n_ctx:
            return
        if not self._pays(entry, entry.saved.n_shared(tokens, exact) - self._backend.n_cached(tokens, exact)):
            return
        if (state := self._store.read(entry)) is not None:
            del self._backend.saved.fetched[: 1 - FETCHED]
            self._backend.saved.fetched.append(state)
            self._read.append(entry.saved.tokens[: entry.saved.n_exact])

    def _pays(self, entry: Entry, n_new: int) -> bool:
        cost = entry.n_bytes / self._store.bytes_per_second + entry.n_bytes / THRESHOLDS.copy_rate
        return n_new * (self._token_seconds or entry.token_seconds) > THRESHOLDS.gain * cost

    def note(self, sequence: Sequence) -> None:
        """Record the prompt and the prefill speed of a sequence that ends."""
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
        if self._is_busy() and not self._is_closing:
            time.sleep(BUSY_PAUSE)

    def close(self) -> None:
        """Store the conversations that are worth it, and wait until they are written."""
        self._is_closing = True
        while self.keep():
            if self._writer is not None:
                self._writer.join()
