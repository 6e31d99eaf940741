"""The loop's body: schedule, draft, one pass of the target, commit. `EngineCore.step` generates every reply.

Knows sequences and token ids; knows no files and no processes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

import psutil

from runtime.core.backend import Flag, TargetBackend
from runtime.core.errors import SlipstreamError, StoppedError
from runtime.core.limits import Limited, Limits
from runtime.engine.output import Chunk, Output
from runtime.engine.prefixes import Prefixes
from runtime.engine.scheduler import Batch, Scheduler
from runtime.engine.sequence import Sequence
from runtime.engine.stats import Stats
from runtime.loading.exactness import Exactness
from runtime.speculative.decoder import Decoder, Result


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
    """The active sequences, their scheduler and their decoder. All methods but `cancel` belong to one thread."""

    def __init__(self, decoder: Decoder, target: TargetBackend, exactness: Exactness, limits: Limits) -> None:
        self.decoder, self._cancels = decoder, Cancels(target.stop_flag)
        self.scheduler = Scheduler(decoder, target, exactness, limits)
        self.prefixes: Prefixes | None = None  # prompts on disk
        self._cancelled: list[int] = []  # cancelled before they were added

    @contextmanager
    def adding(self, new: Limited, number: int) -> Iterator[Callable[[], bool]]:
        """Announce a sequence that the block prepares and adds to the scheduler, with a function that returns whether
        it was cancelled. If the block raises StoppedError for that, the next step returns its last output.

        Raises BusyError, and what else the block raises.
        """
        self.scheduler.check(new, self._cancels.has)
        self._cancels.add(number)
        try:
            yield partial(self._cancels.has, number)
        except BaseException as error:
            self._cancels.remove(number)
            if not isinstance(error, StoppedError):
                raise
            self._cancelled.append(number)

    def cancel(self, number: int) -> None:
        """Cancel a sequence, on any thread: it ends with the next step, and a running pass over it stops."""
        self._cancels.cancel(number)

    def end(self, number: int) -> None:
        """Drop a sequence without an output."""
        for each in [*self.scheduler.waiting, *self.scheduler.sequences]:
            if each.number == number:
                self._leave(each)

    @property
    def n_running(self) -> int:
        """Number of sequences that are being generated."""
        return len(self.scheduler.sequences)

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do."""
        return not (self._cancelled or self.scheduler.waiting or self.scheduler.sequences)

    def step(self) -> list[Output]:
        """Plan a batch, draft and verify in one pass, commit the tokens, and return the outputs. A step that admits or
        ends sequences runs no pass; for admitted ones it returns how much of their prompts is cached.
        """
        outputs = [*self._admit(), *self._end_finished()]
        if outputs or not (batch := self.scheduler.plan()).sequences:
            return outputs
        try:
            self._begin_drafting(batch)
            began = time.perf_counter()
            results = list[Result]()
            with self._cancels.during(batch):
                if batch.decoding:
                    results = self.decoder.step(batch.inputs, batch.prompts, self.n_running)
                else:
                    self.decoder.read(batch.prompts, self.n_running)
        except StoppedError:
            return self._end_finished()
        except Exception as error:  # from the pass: it ends one sequence, and the others try again
            return [self._failed(batch.sequences[0], error)]
        seconds = time.perf_counter() - began
        self.scheduler.record(batch, seconds)
        return [*self._commit(batch, results, seconds), *self._end_finished()]

    def _admit(self) -> Iterator[Output]:
        """End sequences that were cancelled before they ran, and admit others; yield an output for each."""
        while self._cancelled:
            yield Output(self._cancelled.pop(), Chunk("", finish_reason="cancelled", stats=Stats()))
        for each in [*self.scheduler.waiting]:
            if self._cancels.has(each.number):
                each.finish_reason = "cancelled"
                yield self._ended(each)
        for each in self.scheduler.admit():
            if self.prefixes:
                self.prefixes.fetch(each)
            each.stats.cached_n = self.scheduler.n_cached(each)
            yield Output(each.number, each.progress(each.stats.cached_n))

    def _end_finished(self) -> list[Output]:
        """End sequences that were cancelled or are complete, and return their last outputs."""
        for each in self.scheduler.sequences:
            if self._cancels.has(each.number):
                each.finish_reason = "cancelled"
            elif each.left == 0 and each.finish_reason is None and not self.scheduler.n_unread(each):
                each.finish_reason = "length"
        return [self._ended(each) for each in list(self.scheduler.sequences) if each.finish_reason is not None]

    def _begin_drafting(self, batch: Batch) -> None:
        """Begin drafting for sequences that decode for the first time; drafters prefill their prompts if that pays."""
        for each, _ in batch.decoding:
            if not each.has_begun:
                began = time.perf_counter()
                each.has_begun = True
                binding, is_cancelled = each.binding, partial(self._cancels.has, each.number)
                has_grammar = binding.sampler.mask is not None
                self.decoder.begin(each.drafting, each.tokens, binding.expected, has_grammar, is_cancelled)
                each.stats.prompt_seconds += time.perf_counter() - began

    def _commit(self, batch: Batch, results: list[Result], seconds: float) -> Iterator[Output]:
        """Add the results of a pass to its sequences. Yield the progress of prompts, then the decoded tokens."""
        for each, end in batch.reading:
            each.stats.prompt_seconds += seconds
            yield Output(each.number, each.progress(end + (end == each.buffer.n - 1)))
        for (each, n_unread), result in zip(batch.decoding, results, strict=True):
            if isinstance(result, SlipstreamError):
                yield self._failed(each, result)
            else:
                with suppress(StoppedError):  # cancelled while turns were dropped
                    yield Output(each.number, each.commit(result, seconds, n_unread))

    def _failed(self, sequence: Sequence, error: Exception) -> Output:
        self._leave(sequence)
        return Output(sequence.number, error)

    def _ended(self, sequence: Sequence) -> Output:
        """Complete a sequence's statistics and return its last output."""
        stats, decoder = sequence.stats, self.decoder
        stats.plain_per_second = decoder.controller.plain_alone(sequence.buffer.n)
        if decoder.lineup.is_impaired or 2 * stats.drafters["none"] > stats.n_passes:
            stats.reason = decoder.why_plain(sequence.drafting)
        stats.n_near_ties = sequence.binding.sampler.n_near_ties
        stats.memory_level = decoder.lineup.memory_level
        stats.memory_bytes = psutil.Process().memory_info().rss
        self._leave(sequence)
        return Output(sequence.number, sequence.end())

    def _leave(self, sequence: Sequence) -> None:
        has_run = sequence in self.scheduler.sequences
        self.scheduler.remove(sequence)
        self._cancels.remove(sequence.number)
        if has_run:
            if self.prefixes:
                self.prefixes.note(sequence)
            self.decoder.finish(sequence.tokens, sequence.buffer.n_prompt)
        if self.is_idle:
            self.decoder.rest()
