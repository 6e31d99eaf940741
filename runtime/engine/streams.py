"""Iterators over single replies of an engine that pushes outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from queue import Empty, SimpleQueue

from runtime.engine.engine import Ask, Engine
from runtime.engine.output import Chunk
from runtime.engine.stats import Stats

Came = SimpleQueue[Chunk | Exception]  # unread outputs of a reply
POLL_SECONDS = 0.05  # seconds between two checks whether a reply without outputs was cancelled


class PushedEngine(Engine):
    """An engine whose replies may also be read as iterators."""

    def answer(self, ask: Ask, cancel: Callable[[], bool], on_prefill: Callable[[int, int], None]) -> Iterator[Chunk]:
        """See Engine; an invalid request raises before this returns."""
        if cancel():
            return iter((Chunk("", finish_reason="cancelled", stats=Stats()),))
        came: Came = SimpleQueue()
        chunks = self._chunks(self.add(ask, came.put), came, cancel, on_prefill)
        next(chunks)
        return chunks

    def _chunks(
        self, number: int, came: Came, cancel: Callable[[], bool], on_prefill: Callable[[int, int], None]
    ) -> Iterator[Chunk]:
        """Yield an empty chunk once the reply has begun, then the chunks of the reply."""
        chunk, told = Chunk(""), PrefillReport(on_prefill)
        try:
            chunk = self._next(number, came, cancel)
            yield Chunk("")
            while chunk.finish_reason is None:
                told.take(chunk)
                if not is_progress(chunk):
                    yield chunk if chunk.stats is None else replace(chunk, stats=None, n_read=0)
                chunk = self._next(number, came, cancel)
        finally:
            if chunk.finish_reason is None:
                self.end(number)
        told.take(chunk)
        yield chunk

    def _next(self, number: int, came: Came, cancel: Callable[[], bool]) -> Chunk:
        """Wait for the next output of this reply and return it. Raises it if it is an error."""
        output = None
        while output is None:
            if cancel():
                self.cancel(number)
            output = self._wait(came)
        if isinstance(output, Exception):
            raise output
        return output

    def _wait(self, came: Came) -> Chunk | Exception | None:
        """Return the next output, or None if there is none within a moment."""
        try:
            return came.get(timeout=POLL_SECONDS)
        except Empty:
            return None


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
            if self._total:
                self._on_prefill(min(chunk.n_read, self._total), self._total)
        elif chunk.finish_reason != "cancelled":
            self._is_read = True
            self._on_prefill(self._total, self._total)
