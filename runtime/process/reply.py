"""A reply that another process makes, and what is kept of it here, so that it can go on when that process was lost."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable
from dataclasses import replace
from typing import Protocol

from runtime.core.errors import SettingsError, StoppedError
from runtime.engine.engine import Ask
from runtime.engine.reply import Chunk
from runtime.engine.stats import Stats
from runtime.process.model_process import TEXT, ModelProcess, OverdueError, ProcessLostError
from runtime.speculative.control.explain import Pass

NEAR = 32  # tokens of a reply that count as one place

OnPrefill = Callable[[int, int], None]


class Lives(Protocol):
    """What starts the process anew, and keeps its records."""

    @property
    def n_waiting(self) -> int:
        """Replies that wait for the steps that are made."""

    def living(self) -> ModelProcess:
        """The process, started anew where it was lost."""

    def note_loss(self, lost: ProcessLostError, place: Hashable) -> None:
        """Raises ModelError when that goes on."""

    def note_pass(self, number: int, n: int, made: Pass) -> None:
        """Takes in the `n`-th pass of the reply of that number."""


class ProcessReply:
    """One reply: its tokens and passes so far, and the process that makes it."""

    def __init__(self, lives: Lives, number: int, ask: Ask, cancel: Callable[[], bool]) -> None:
        self._lives, self._number, self._ask, self._cancel = lives, number, ask, cancel
        self.said: list[int] = []
        self.passes: list[Pass] = []
        self._process: ModelProcess | None = None  # that has begun it
        self._is_reading = False  # has nothing been heard since then?

    def begin(self) -> bool:
        """Has it begun, where it had not? False when it was cancelled meanwhile. Raises what Engine.reply raises."""
        while self._process is None:
            if self._cancel():
                return False
            process = self._lives.living()
            ask = replace(self._ask, said=tuple(self.said), passes=tuple(self.passes))
            try:
                process.begin(self._number, ask, self._cancel)
            except ProcessLostError as lost:
                self._note(lost)
            except OverdueError:
                raise SettingsError(
                    f"Preparing the reply took more than {TEXT:g} s, so it was given up. Simplify what binds it."
                ) from None
            except StoppedError:
                return False
            else:
                self._process, self._is_reading = process, True
        return True

    def _note(self, lost: ProcessLostError) -> None:
        self._process = None
        self._lives.note_loss(lost, (self._number, len(self.said) // NEAR))

    def chunks(self, on_prefill: OnPrefill, pauses: bool) -> Generator[Chunk]:
        """The reply as it is made; whoever closes it ends the reply. Raises what Engine.reply raises on the way."""
        chunks = self._chunks(on_prefill, pauses)
        next(chunks)  # of a generator that was not entered, closing would leave the reply where it is made
        return chunks

    def _chunks(self, on_prefill: OnPrefill, pauses: bool) -> Generator[Chunk]:
        chunk = Chunk("")
        try:
            yield chunk
            while chunk.finish_reason is None:
                step = self._next(pauses)
                if step is None:
                    yield Chunk("")
                    continue
                chunk = step
                if chunk.made is None and chunk.finish_reason is None:  # the prompt is being read
                    self._tell(chunk, on_prefill)
                    if not pauses or self.said:
                        continue
                elif chunk.n_read and len(self.said) == len(chunk.tokens):
                    on_prefill(chunk.n_read - 1, chunk.n_read - 1)
                yield chunk
        finally:
            if self._process is not None:
                self._process.end(self._number, is_over=chunk.finish_reason is not None)

    def _tell(self, chunk: Chunk, on_prefill: OnPrefill) -> None:
        """How far the prompt has been read; the first that is heard is what need not be, if that is anything."""
        total = chunk.stats.prompt_n - 1 if chunk.stats else 0
        if (chunk.n_read or not self._is_reading) and not self.said:
            on_prefill(min(chunk.n_read, total), total)
        self._is_reading = False

    def _next(self, pauses: bool) -> Chunk | None:
        """The next chunk, whatever it takes; None where it `pauses` for others."""
        while self.begin() and self._process is not None:
            if self._process.was_lost_beside(self._number):
                self._process = None
                continue
            try:
                chunk = self._process.step(self._number, self._lives.n_waiting, self._cancel, pauses)
                return None if chunk is None else self._kept(chunk)
            except ProcessLostError as lost:
                self._note(lost)
            except StoppedError:
                break
        stats = Stats(steps=self.passes, decode_seconds=sum(each.seconds for each in self.passes))
        return Chunk("", finish_reason="cancelled", stats=stats)

    def _kept(self, chunk: Chunk) -> Chunk:
        """Takes note of what has come, in case that it has to be read again."""
        self.said += chunk.tokens
        if chunk.made is not None:
            self.passes.append(chunk.made)
            self._lives.note_pass(self._number, len(self.passes), chunk.made)
        return chunk
