"""The loop's body: schedule, draft, one pass of the target, commit. `EngineCore.step` generates every reply.

Knows sequences and token ids; knows no files and no processes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import contextmanager
from functools import partial
from typing import Any

from runtime.core.backend import Flag, TargetBackend
from runtime.core.errors import StoppedError
from runtime.core.limits import Limits
from runtime.engine.ahead import ReadAhead, make_way
from runtime.engine.engine import Ask
from runtime.engine.output import Chunk, Output
from runtime.engine.prefixes import Prefixes
from runtime.engine.preparation import Make, Preparation
from runtime.engine.scheduler import Scheduler
from runtime.engine.sequence import Batch, Sequence
from runtime.speculative.decoder import Decoder, Result

POLL = 0.02  # seconds that a step may wait for a stored prompt, or for a request that is being prepared

log = logging.getLogger(__name__)


class Cancels:
    """The numbers of cancelled sequences. Cancelling a sequence, on any thread, stops a running pass over it."""

    def __init__(self, flag: Flag) -> None:
        self._flag, self._lock = flag, threading.Lock()
        self._known, self._cancelled, self._in_pass = set[int](), set[int](), set[int]()

    def add(self, number: int) -> None:
        """Add the number of a sequence that may be cancelled from now on."""
        with self._lock:
            self._known.add(number)

    def remove(self, number: int) -> None:
        """Forget a sequence that has ended."""
        with self._lock:
            self._known.discard(number)
            self._cancelled.discard(number)

    def cancel(self, number: int) -> None:
        """Cancel a sequence and stop a running pass over it; an unknown number is ignored."""
        with self._lock:
            if number in self._known:
                self._cancelled.add(number)
                self._put(True)

    def has(self, number: int) -> bool:
        """Return whether a sequence was cancelled."""
        return number in self._cancelled

    @contextmanager
    def during(self, batch: Batch) -> Iterator[None]:
        """Make the pass in this block raise StoppedError when a sequence of the batch is cancelled."""
        with self._lock:
            self._in_pass = {each.number for each in batch.sequences}
            self._put(True)
        try:
            yield
        finally:
            with self._lock:
                self._put(False)
                self._in_pass = set()

    def _put(self, is_up: bool) -> None:
        """Set or clear the flag if it concerns the running pass."""
        if not self._in_pass.isdisjoint(self._cancelled):
            self._flag.put(is_up)


class EngineCore:
    """The active sequences, their scheduler and their decoder. All methods belong to one thread, but for `cancels`."""

    def __init__(self, decoder: Decoder, target: TargetBackend, limits: Limits, ahead: ReadAhead) -> None:
        self.decoder, self.cancels, self.ahead = decoder, Cancels(target.stop_flag), ahead
        self.scheduler = Scheduler(decoder, target, limits)
        self.prefixes: Prefixes | None = None  # prompts on disk
        self.preparing: list[Preparation] = []  # requests that have no sequence yet
        self.last: Sequence | None = None  # of the last request, also when it has ended

    def begin(self, ask: Ask, number: int, make: Make, pool: Executor | None = None) -> None:
        """Let `make` prepare the sequence of a request, on a thread of the pool, if there is one; a later step adds it
        to those that wait, or returns its error. What is read ahead ends. Raises BusyError.
        """
        make_way(ask, (*self.scheduler.all, *self.preparing), self.cancels.cancel)
        self.scheduler.check(ask, self.preparing, self.cancels.has)
        self.cancels.add(number)
        self.preparing.append(Preparation(number, ask, make, partial(self.cancels.has, number), pool))

    def end(self, number: int) -> None:
        """Drop a sequence without an output."""
        self.preparing = [each for each in self.preparing if each.number != number]
        self.cancels.remove(number)
        for each in self.scheduler.all:
            if each.number == number:
                self._leave(each)

    @property
    def n_running(self) -> int:
        """Number of sequences that are being generated."""
        return len(self.scheduler.sequences)

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.preparing or self.scheduler.all)

    def step(self) -> list[Output]:
        """Plan a batch, draft and verify in one pass, commit the tokens, and return the outputs. A step that admits or
        ends sequences runs no pass; for those that begin it returns how much of their prompts is cached.
        """
        if outputs := [*self._add_prepared(), *self._end_finished(), *self._admit()]:
            return outputs
        if not (batch := self.scheduler.plan()).sequences:
            stored: list[Future[Any]] = [each.stored for each in self.scheduler.waiting if each.stored]
            wait([*stored, *(each.pending for each in self.preparing)], POLL, FIRST_COMPLETED)
            return []
        return [*self._run(batch), *self._end_finished()]

    def _run(self, batch: Batch) -> list[Output]:
        """Run one pass over a batch, and return its outputs. If it fails, its sequences continue one after the other,
        and one that fails alone ends with its error.
        """
        try:
            self._begin_drafting(batch)
            began = time.perf_counter()
            results = list[Result]()
            with self.cancels.during(batch):
                if batch.decoding:
                    results = self.decoder.step(batch.inputs, batch.prompts, self.n_running)
                else:
                    self.decoder.read(batch.prompts, self.n_running)
        except StoppedError:
            return []
        except Exception as error:
            if len(batch.sequences) == 1:
                return [self._failed(batch.sequences[0], error)]
            self.scheduler.isolate(batch)
            return []
        seconds = time.perf_counter() - began
        self.scheduler.record(batch, seconds)
        return [*self._commit(batch, results, seconds)]

    def _add_prepared(self) -> Iterator[Output]:
        """Let sequences wait that have been prepared. Yield the last outputs of those that failed or were cancelled,
        and first ones of those that wait for their images, which may take long.
        """
        for each in [each for each in self.preparing if each.is_over]:
            self.preparing.remove(each)
            if isinstance(came := each.outcome, Sequence):
                self.last = self.last if each.ask.is_ahead else came
                self.scheduler.add(came)
            else:
                self.cancels.remove(each.number)
                yield Output(each.number, came)
        yield from [Output(each.number, chunk) for each in self.preparing if (chunk := each.first_chunk())]

    def _admit(self) -> Iterator[Output]:
        """Let sequences run once what is stored of their prompts has been read; yield an output for each."""
        for each in self.scheduler.admitted():
            if not self.prefixes or self.prefixes.fetch(each):
                self.scheduler.run(each)
                yield from self._made(each, self._begun)

    def _end_finished(self) -> Iterator[Output]:
        """End sequences that were cancelled or are complete, and yield their last outputs."""
        for each in self.scheduler.finished(self.cancels.has):
            yield from self._made(each, self._ended)

    def _begin_drafting(self, batch: Batch) -> None:
        """Begin drafting for sequences that decode for the first time. Drafters that have to prefill a prompt do so
        after its first token if that pays, a piece in a step.
        """
        for each, _ in batch.decoding:
            state, binding = each.drafting, each.binding
            if state.has_begun or not state.may_read(each.buffer.n_reply, each.stats.decode_seconds):
                continue
            began, is_first = time.perf_counter(), state.beginning is None
            is_cancelled, has_grammar = partial(self.cancels.has, each.number), binding.sampler.mask is not None
            self.decoder.begin(state, each.tokens, binding.expected, has_grammar, is_cancelled)
            if not is_first:
                each.stats.decode_seconds += time.perf_counter() - began
                return
            each.stats.prompt_seconds += time.perf_counter() - began

    def _commit(self, batch: Batch, results: list[Result], seconds: float) -> Iterator[Output]:
        """Add the results of a pass to its sequences. Yield the progress of prompts, then the decoded tokens."""
        for each, _, end in batch.reading:
            each.stats.prompt_seconds += seconds
            yield Output(each.number, each.progress(end + (end == each.buffer.n - 1)))
        for (each, n_unread), result in zip(batch.decoding, results, strict=True):
            if isinstance(result, Exception):
                yield self._failed(each, result)
            else:
                yield from self._made(each, partial(Sequence.commit, step=result, seconds=seconds, n_unread=n_unread))

    def _made(self, sequence: Sequence, make: Callable[[Sequence], Chunk]) -> Iterator[Output]:
        """Yield what `make` makes of a sequence, nothing if it was cancelled. An error ends this sequence alone."""
        try:
            yield Output(sequence.number, make(sequence))
        except StoppedError:
            return
        except Exception as error:
            yield self._failed(sequence, error)

    def _failed(self, sequence: Sequence, error: Exception) -> Output:
        self._leave(sequence)
        return Output(sequence.number, error)

    def _begun(self, sequence: Sequence) -> Chunk:
        """Return the first output of a sequence: how much of its prompt is cached."""
        sequence.stats.cached_n = self.scheduler.n_cached(sequence)
        self.ahead.begin(sequence)
        return sequence.progress(sequence.stats.cached_n)

    def _ended(self, sequence: Sequence) -> Chunk:
        """Complete a sequence's statistics and return its last output."""
        sequence.complete_stats(self.decoder)
        self._leave(sequence)
        return sequence.end()

    def _leave(self, sequence: Sequence) -> None:
        if sequence in self.scheduler.sequences:  # it has run
            keep = self.ahead.end if sequence.ask.is_ahead else self._keep
            keep(sequence)
        self.scheduler.remove(sequence)
        sequence.binding.sampler.mask = None  # its grammar may be large, and the last sequence is kept for `explain`
        self.cancels.remove(sequence.number)
        if self.is_idle:
            self.decoder.rest()

    def _keep(self, sequence: Sequence) -> None:
        """Keep what later replies can use of a sequence. If that fails, nothing is lost but time."""
        try:
            if self.prefixes:
                self.prefixes.note(sequence)
            self.decoder.finish(sequence.tokens, sequence.buffer.n_prompt)
        except Exception:
            log.exception("Nothing was learned from a reply.")
