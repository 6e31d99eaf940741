"""Prompt cache on disk: decides which prompt states are stored, and when one is loaded instead of reading the prompt.

Threads read and write the states: they are written at low priority while the engine is idle, and read while other
replies go on. Knows sequences and backends.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import replace
from typing import TypeVar

from runtime.backends.llama import LlamaBackend
from runtime.backends.reloadable import ReloadableBackend
from runtime.backends.stored.saved_states import SavedState
from runtime.backends.translated import own_context
from runtime.core.draft import Adapters, Tokens, common_prefix
from runtime.engine.sequence import Sequence
from runtime.engine.stored_states import THRESHOLDS, StoredStates, put

COUNTED = 64  # minimum prompt tokens for a measurement of prefill speed
PROMPTS = 16  # recently read prompts that are remembered

Result = TypeVar("Result")
log = logging.getLogger(__name__)


class Prefixes:
    """Stored prompts of one engine. `is_exact` returns whether KV cells are the same in passes of any width with such
    adapters. `draft` has those of its draft model.
    """

    def __init__(
        self,
        backend: LlamaBackend,
        states: StoredStates,
        is_exact: Callable[[Adapters], bool],
        draft: DraftPrefixes | None = None,
    ) -> None:
        self._backend, self._states, self._is_exact, self._draft = backend, states, is_exact, draft
        # Prompts whose cells come from prefill, not from decoding, and the adapters with which they were read
        self._read = deque[tuple[Adapters, Tokens]](maxlen=PROMPTS)

    def fetch(self, sequence: Sequence) -> bool:
        """Read the stored state with the longest prefix of a new sequence's prompt, if that is faster than prefill.

        Returns whether that has ended, with what was found in the backend; else it goes on in a thread: ask again.
        """
        if sequence.stored is None:
            sequence.stored = self._begin(sequence)
            wait((sequence.stored,), THRESHOLDS.wait)
        if not sequence.stored.done():
            return False
        state, sequence.stored = sequence.stored.result(), None
        put(state, self._backend)
        if state is not None:
            self._read.append((state.adapters, state.tokens[: state.n_exact]))
        return True

    def _begin(self, sequence: Sequence) -> Future[SavedState | None]:
        tokens, exact = sequence.tokens.copy(), sequence.needs_exact_widths
        if self._draft:
            self._draft.fetch(tokens)
        self._backend.use(adapters := sequence.adapters)
        n_cached, is_pure = self._backend.n_cached(tokens, exact), exact and not self._is_exact(adapters)
        return in_thread(lambda: self._states.read(tokens, n_cached, self._backend.n_ctx, exact, is_pure, adapters))

    def note(self, sequence: Sequence) -> None:
        """Record the prompt and the prefill speed of a sequence that ends."""
        self._states.store.settle(self._backend.saved.refused, has_failed=sequence.finish_reason is None)
        stats = sequence.stats
        n_read = min(sequence.n_read, sequence.buffer.n_prompt - 1)
        if n_read - stats.cached_n >= COUNTED:
            self._states.token_seconds = stats.prompt_seconds / (n_read - stats.cached_n)
        tokens = sequence.tokens[:n_read]
        is_prefilled = self._point(tokens, sequence.adapters) >= min(stats.cached_n, n_read)
        if n_read > 0 and (self._is_exact(sequence.adapters) or is_prefilled):
            self._read.append((sequence.adapters, tokens.copy()))

    def _point(self, tokens: Tokens, adapters: Adapters) -> int:
        """Return the end of the last prompt of a conversation, from which another reply may be requested."""
        alike = (each for of, each in self._read if of == adapters)
        return max((common_prefix(each, tokens) for each in alike), default=0)

    def keep(self) -> bool:
        """Begin to store the state of one conversation that is slow to read. Return whether more may follow."""
        self._backend.saved.fetched.clear()
        if self._states.is_writing:
            return True
        for each in self._backend.conversations():
            is_worth = self._states.is_worth(each.tokens, each.adapters)
            if is_worth and (state := each.copy(self._point(each.tokens, each.adapters))) is not None:
                n_exact = (
                    len(state.tokens)
                    if self._is_exact(state.adapters)
                    else min(self._point(state.tokens, state.adapters), state.n_exact)
                )
                self._states.write(replace(state, n_exact=n_exact))
                return True
        return self._draft is not None and self._draft.keep()

    def close(self, on_progress: Callable[[], object] = lambda: None) -> None:
        """Store the conversations that are worth it, and wait until they are written; a thread calls `on_progress` for
        each part.
        """
        all_states = [self._states, *([self._draft.states] if self._draft else [])]
        for each in all_states:
            each.on_progress = on_progress
        while self.keep():
            for each in all_states:
                each.wait()


class DraftPrefixes:
    """Stored prompts of a draft model, which drafts at once if its state is there, instead of reading the prompt first.

    `view` returns the part of a context that it reads, and `token_seconds` its prefill seconds per token.
    """

    def __init__(
        self,
        draft: ReloadableBackend,
        states: StoredStates,
        view: Callable[[Tokens], Tokens],
        token_seconds: Callable[[], float],
    ) -> None:
        self._draft, self.states, self._view, self._token_seconds = draft, states, view, token_seconds

    def _backend(self) -> LlamaBackend | None:
        """Return the draft model's context; None while it is closed."""
        return own_context(self._draft.backend) if self._draft.is_open else None

    def fetch(self, tokens: Tokens) -> None:
        """Begin to read the state for a prompt; nobody waits for it."""
        if (backend := self._backend()) is None:
            return
        view = self._view(tokens)
        n_cached = backend.n_cached(view)
        in_thread(lambda: put(self.states.read(view, n_cached, backend.n_ctx, exact=False, is_pure=False), backend))

    def keep(self) -> bool:
        """See Prefixes."""
        self.states.token_seconds = self._token_seconds()
        if self.states.is_writing:
            return True
        if (backend := self._backend()) is None:
            return False
        backend.saved.fetched.clear()
        self.states.store.settle(backend.saved.refused, has_failed=False)
        for each in backend.conversations():
            if self.states.is_worth(each.tokens) and (state := each.copy(len(each.tokens))) is not None:
                self.states.write(state)
                return True
        return False


def in_thread(read: Callable[[], Result]) -> Future[Result | None]:
    """Return the future result of reading a state in a thread; None where that fails, which only costs prefill."""
    result = Future[Result | None]()

    def run() -> None:
        try:
            result.set_result(read())
        except Exception:
            log.exception("A stored prompt could not be read.")
            result.set_result(None)

    try:
        threading.Thread(target=run, name="prompt reader", daemon=True).start()
    except RuntimeError:  # the system has no thread left
        result.set_result(None)
    return result
