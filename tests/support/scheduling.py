"""What a test of scheduling knows of today's engine, in one place: replies are begun, read, cancelled and left; the
models' process is lost, a pass fails, all is closed.

A rebuilt scheduler is tested by the same machine through another `Scheduling`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from runtime.backends.shared import SharedBackend
from runtime.conversation.prompt import Ids
from runtime.core.errors import BusyError
from runtime.core.spawning import Spawned
from runtime.engine import core
from runtime.engine.engine import Ask
from runtime.engine.process import client, host, model_process
from runtime.engine.process.client import EngineProcess
from runtime.loading.options import Options
from tests.support.alone import Request
from tests.support.fairness import Fairness
from tests.support.read_reply import Reply, is_full
from tests.support.toy_engine import N_CTX, PAIR, Setup, ToyEngine
from tests.support.toy_library import FAILED, TickingClock, ToyContext, ToyLibrary
from tests.support.toy_process import LostError, NoTexts, Outgoing, ToyProcess


class Scheduling:
    """An engine over the toy library, here or in a process that does `n_ahead` passes while it is waited for."""

    def __init__(self, setup: Setup, n_ahead: float | None, patch: pytest.MonkeyPatch) -> None:
        self._setup, self._n_ahead = setup, n_ahead
        self._patch, clock = patch, TickingClock()
        clock.replace(self._patch, "perf_counter", "process_time", "monotonic")
        self._patch.setattr(host, "WAY", 0.0)
        self._patch.setattr(client, "CANCEL_SECONDS", 60.0)
        # A thread of a process that is late adds no steps, which would take time here
        self._patch.setattr(core, "POLL", core.POLL if n_ahead is None else 60.0)
        self._patch.setattr(model_process, "spawn", self._spawn)
        self._patch.setattr(model_process, "Outgoing", Outgoing)
        self._patch.setattr(model_process, "TextCalls", NoTexts)
        self._patch.setattr(EngineProcess, "_run", lambda self: None)  # it is advanced here
        # Who asks for no seed gets one, so that a failure can be had again
        self._patch.setattr("runtime.sampling.sampler.random", SimpleNamespace(Random=lambda seed: random.Random(0)))
        self.fairness = Fairness(self._patch)
        self._library = ToyLibrary(self._patch, clock)
        self._library.before_pass = self._before_pass
        self._events: list[tuple[int, Callable[[ToyContext], int]]] = []
        self._n_passes = self.n_failed = 0  # passes of target or draft; those of the target that failed
        self.replies: list[Reply] = []
        self.open()

    @property
    def most_unwanted(self) -> int:
        """Reads of a reply that was cancelled; another process may have made all of it before."""
        return 2 if self._n_ahead is None else N_CTX

    def open(self) -> None:
        """Loads the models."""
        self._process: ToyProcess | None = None
        options = Options(limits=self._setup.limits)
        self.engine: ToyEngine | EngineProcess = (
            ToyEngine(self._setup) if self._n_ahead is None else EngineProcess(PAIR, options)
        )

    def _spawn(self) -> Spawned:
        assert self._n_ahead is not None
        self._process = ToyProcess(self._setup, self._n_ahead)
        return self._process.spawned()

    def add(self, request: Request) -> Reply:
        """A reply begins, or is refused: where the models are here, exactly when too many wait."""
        for each in self.replies:
            if each.is_cancelled:
                self.engine.cancel(each.number)
        expects_refusal, reply = self._is_full(request), Reply(request)
        self.replies.append(reply)
        self._begin(reply)
        if self._n_ahead is None:
            assert expects_refusal == any(isinstance(came, BusyError) for came in reply.came)
        return reply

    def _is_full(self, request: Request) -> bool:
        return is_full(self._setup.limits, self.replies, request.is_short, self._setup.n_slots == 1)

    def _begin(self, reply: Reply) -> None:
        request, reply.n_unwanted = reply.request, 0
        said = [*reply.said.tokens, *(token for chunk in reply.came for token in chunk.tokens)]  # type: ignore[union-attr]
        ask = Ask(
            Ids(request.prompt), request.sampling, request.max_tokens, request.stops, reply_tokens=tuple(said),
            is_short=request.is_short, is_admitted=reply.has_begun, lora=request.lora,
        )  # fmt: skip
        try:
            reply.number = self.engine.add(ask, reply.hear)
        except BusyError as error:
            reply.hear(error)
        if reply.is_cancelled:
            self.engine.cancel(reply.number)

    def read(self, reply: Reply) -> None:
        """Reads what comes next of a reply, while all others wait; a step is made where nothing is there."""
        if self._process is not None:
            self._process.n_waits = 0
        if reply.is_cancelled:
            self.engine.cancel(reply.number)
        if not reply.came:
            reply.n_unwanted += reply.is_cancelled
            self._step()
        reply.take(reply.came.popleft() if reply.came else None)
        if reply.is_over:
            self.leave(reply)

    def _step(self) -> None:
        try:
            if isinstance(self.engine, EngineProcess):
                self.engine.advance()
            else:
                self.engine.step()
        except LostError:
            self.crash()

    def leave(self, reply: Reply) -> None:
        """Nobody reads it any more."""
        self.replies.remove(reply)
        if not reply.is_over:
            self.engine.end(reply.number)

    def crash(self) -> None:
        """The models' process is lost; whoever reads goes on."""
        if self._process is not None:
            self._process.kill()
            return
        self.open()
        for reply in self.replies:
            reply.number = 0
            if not any(isinstance(came, Exception) or came.finish_reason for came in reply.came):
                self._begin(reply)

    def after(self, n: int, event: Callable[[ToyContext], int]) -> None:
        """Something happens in the n-th pass from now; what it returns is what the library does."""
        self._events.append((self._n_passes + n, event))

    def cancel_in_pass(self, reply: Reply, n: int) -> None:
        """That reply is cancelled while that pass is made."""

        def cancel(context: ToyContext) -> int:
            reply.is_cancelled = True
            self.engine.cancel(reply.number if reply in self.replies else 0)
            return 0

        self.after(n, cancel)

    def crash_in_pass(self, n: int) -> None:
        """The process is lost in that pass."""

        def crash(context: ToyContext) -> int:
            raise LostError

        self.after(n, crash)

    def fail_in_pass(self, n: int) -> None:
        """The library fails in that pass."""

        def fail(context: ToyContext) -> int:
            self.n_failed += context is self._toy.backends[0].handle
            return FAILED

        self.after(n, fail)

    def _before_pass(self, context: ToyContext) -> int:
        self._n_passes += 1
        due = [each for each in self._events if each[0] <= self._n_passes]
        self._events = [each for each in self._events if each not in due]
        codes = [event(context) for _, event in due]
        if self._process is not None:
            self._process.before_pass()
        return min(codes, default=0)

    @property
    def _toy(self) -> ToyEngine:
        """The engine that has the models."""
        engine = self._process.host.engine if self._process else self.engine
        assert isinstance(engine, ToyEngine)
        return engine

    @property
    def is_at_rest(self) -> bool:
        """Is the process there, and not in the middle of anything?"""
        process = self._process
        return process is None or (process.is_idle and process.code is None and not process.end.came)

    def check_limits(self) -> None:
        """No more are made at the same time than may be."""
        most, made = self._setup.limits.max_running, self._toy.core.scheduler.sequences
        if most is not None:
            assert sum(not each.ask.is_short for each in made) <= most
            assert sum(each.ask.is_short for each in made) <= 1

    def check_cache(self) -> None:
        """The cache holds what our books say, and nothing else."""
        if not self.is_at_rest:
            return
        for backend in self._toy.backends:
            context = backend.handle
            if context is None:  # a draft's that broke
                continue
            # One that was put away for want of cells is forgotten when the next conversation changes its seat
            assert backend.n_held <= backend.slots + 1, "more conversations are held than may be"
            if isinstance(backend, SharedBackend):
                for seat in backend._seats.all:
                    assert context.held(seat.sequence) == seat.tokens[: seat.n_held].tolist()
                assert len(context.cells) == backend._map.top
            else:
                assert context.held(0) == backend.seat.tokens[: backend.seat.n_held].tolist()

    def left_over(self) -> list[object]:
        """What is still kept of replies, of which none is made any more."""
        if not self.is_at_rest:
            return []
        core = self._toy.core
        found: list[object] = [*core.scheduler.sequences, *core.scheduler.waiting, *core.cancels._known]
        if isinstance(self.engine, EngineProcess):
            while self.engine.kept.current._commands.came:  # type: ignore[attr-defined]
                self.engine.advance()
            found += [*self.engine._replies.all(), *self.engine._replies._left]
        if self._process is not None:
            found += self._process.host._outbox._silent
        return found

    def close(self) -> None:
        """Frees the models."""
        self.engine.close()


@contextmanager
def scheduling(setup: Setup, n_ahead: float | None) -> Iterator[Scheduling]:
    """One for a while; then the library is llama.cpp's again, and time passes."""
    with pytest.MonkeyPatch.context() as patch:
        made = Scheduling(setup, n_ahead, patch)
        try:
            yield made
        finally:
            made.close()
