"""Iterators over single replies of an engine whose steps generate several."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace

from runtime.engine.engine import Ask, Engine
from runtime.engine.output import Chunk
from runtime.engine.stats import Stats


class SteppedEngine(Engine):
    """An engine whose replies may also be read as iterators, on the thread of its steps."""

    def __init__(self) -> None:
        self._came: dict[int, deque[Chunk | Exception]] = {}  # unread outputs by the number of a reply

    def answer(self, ask: Ask, cancel: Callable[[], bool], on_prefill: Callable[[int, int], None]) -> Iterator[Chunk]:
        """See Engine; an invalid request raises before this returns."""
        if cancel():
            return iter((Chunk("", finish_reason="cancelled", stats=Stats()),))
        number = self.add(ask)
        self._came[number] = deque()
        chunks = self._chunks(number, cancel, on_prefill)
        next(chunks)
        return chunks

    def _chunks(
        self, number: int, cancel: Callable[[], bool], on_prefill: Callable[[int, int], None]
    ) -> Iterator[Chunk]:
        """Yield an empty chunk once the reply has begun, then the chunks of the reply."""
        came, is_over, told = self._came[number], False, PrefillReport(on_prefill)
        try:
            chunk = self._next(number, came, cancel)
            yield Chunk("")
            while True:
                is_over = chunk.finish_reason is not None
                told.take(chunk)
                if not is_progress(chunk):
                    yield chunk if is_over or chunk.stats is None else replace(chunk, stats=None, n_read=0)
                if is_over:
                    return
                chunk = self._next(number, came, cancel)
        finally:
            del self._came[number]
            if not is_over:
                self.end(number)

    def _next(self, number: int, came: deque[Chunk | Exception], cancel: Callable[[], bool]) -> Chunk:
        """Run steps until one returns an output of this reply, and return its chunk."""
        if cancel():
            self.cancel(number)
        while not came:
            for output in self.step():
                if output.number in self._came:
                    self._came[output.number].append(output.came)
            if not came and cancel():
                self.cancel(number)
        chunk = came.popleft()
        if isinstance(chunk, Exception):
            raise chunk
        return chunk


def is_progress(chunk: Chunk) -> bool:
    """Return whether a chunk only reports prefill progress."""
    return chunk.made is None and chunk.finish_reason is None


class PrefillReport:
    """Reports prefill progress to `on_prefill`, without the prompt's last token, which the first step decodes."""

    def __init__(self, on_prefill: Callable[[int, int], None]) -> None:
        self._on_prefill, self._total, self._is_read = on_prefill, 0, False

    def take(self, chunk: Chunk) -> None:
        """Process the next chunk of a reply."""
        if self._is_read:
            return
        if is_progress(chunk) and chunk.stats:
            self._total = chunk.stats.prompt_n - 1
            self._is_read = chunk.n_read >= self._total > 0
            if chunk.n_read:
                self._on_prefill(min(chunk.n_read, self._total), self._total)
        elif chunk.finish_reason != "cancelled":
            self._is_read = True
            self._on_prefill(self._total, self._total)
