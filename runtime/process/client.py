"""An engine whose models are in a separate process. If that crashes, it is restarted, the tokens so far are prefilled
again, and the reply continues with the same text.

The state of a reply is its token ids, and the KV cache can be rebuilt from them, so the ids kept here are enough.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Any

from runtime.core.backend import OnProgress
from runtime.core.errors import ModelError, SettingsError, SlipstreamError
from runtime.engine.engine import Ask
from runtime.engine.output import Chunk, Output
from runtime.engine.stats import Stats
from runtime.engine.streams import SteppedEngine
from runtime.engine.trace import TracedPass, TraceFile
from runtime.loading.options import Options
from runtime.models.registry import Pair
from runtime.process.losses import Losses
from runtime.process.messages import Call, Status
from runtime.process.model_process import TEXT, ModelProcess, OverdueError, ProcessLostError
from runtime.process.questions import RemoteQuestions
from runtime.process.replies import LiveReplies, LiveReply
from runtime.process.texts import RemoteTexts
from runtime.speculative.control.explain import Pass

WORKER_TIMEOUT = 15.0  # seconds that a worker may take to be reachable again
HEED = 0.3  # seconds to wait for the end of a cancelled reply
CLOSED = "The model is closed."
IDLE = "idle"  # the place of a loss that no reply of the process can have caused
Say = Callable[[str], object]


def silent(text: str) -> None:
    """Ignore a message."""


class EngineProcess(RemoteQuestions, RemoteTexts, SteppedEngine):
    """An engine in another process.

    `say` gets a message when the process was lost and restarted, and when the `trace` of the passes ends.
    """

    def __init__(
        self,
        pair: Pair,
        options: Options | None = None,
        on_progress: OnProgress | None = None,
        say: Say = silent,
        trace: TraceFile | None = None,
    ) -> None:
        RemoteTexts.__init__(self)
        SteppedEngine.__init__(self)
        self.pair, self._say, self._losses, self._trace = pair, say, Losses(options or Options()), trace
        self._lock, self._is_closed, self._replies = threading.RLock(), False, LiveReplies()
        self._numbers = trace.sequences if trace else count(1)
        self._last: LiveReply | None = None
        self._process = self._started(on_progress or (lambda what, share: True))
        self.facts = self._process.facts
        if self._losses.is_reduced:
            lost = f"the model's process was lost while it loaded and was started again{self._losses.consequence}"
            self.facts = replace(self.facts, left_out="; ".join(filter(None, (self.facts.left_out, lost))))

    def _started(self, on_progress: OnProgress, timeout: float = 0.0) -> ModelProcess:
        """Start the process and load the pair; restart it if it is lost.

        Workers may be unreachable for `timeout` seconds, because the process is lost when a worker is. Raises what
        loading raises, and ModelError if loading lost the process several times.
        """
        while True:
            try:
                process = ModelProcess(self.pair, replace(self._losses.options, worker_timeout=timeout), on_progress)
            except ProcessLostError as lost:
                self.note_loss(lost, "load")
            else:
                self._losses.forgive("load")
                return process

    def living(self) -> ModelProcess:
        """Return the process, restarted if it was lost. Raises what loading raises."""
        with self._lock:
            if not self._process.is_alive:
                if self._is_closed:
                    raise ModelError(CLOSED)
                self._process.close()
                try:
                    self._process = self._started(lambda what, share: not self._is_closed, WORKER_TIMEOUT)
                except KeyboardInterrupt:  # closed meanwhile
                    raise ModelError(CLOSED) from None
                self.facts = self._process.facts
                lacking = f" {self.facts.left_out}." if self.facts.left_out else ""
                self._say(
                    f"The model's process was lost and has been started again{self._losses.consequence}.{lacking}"
                )
            return self._process

    def note_loss(self, lost: ProcessLostError, place: Hashable) -> None:
        """Record the loss of the process at this place. Raises ModelError if losses there repeat."""
        with self._lock:
            self._losses.note(lost, place, self.pair.target.name)

    def _ask(self, name: str, *args: Any) -> Any:
        """Call a method of the remote engine while replies continue, and return its result."""
        place = object()
        while True:
            try:
                return self.living().ask(Call(name, args))
            except ProcessLostError as lost:
                self.note_loss(lost, place)

    @property
    def is_answering(self) -> bool:
        """Whether any reply is being generated."""
        return bool(self._replies.all())

    def add(self, ask: Ask) -> int:
        """See Engine. May be called on any thread."""
        number = next(self._numbers)
        self._last = LiveReply(number, replace(ask, is_traced=ask.is_traced or self._trace is not None))
        self._replies.add(self._last)
        with suppress(ProcessLostError):  # the next step restarts it
            self._replies.submit(self._process)
        return number

    def step(self) -> list[Output]:
        """See Engine. A reply whose process was lost continues in a new one."""
        if unheeded := [*self._replies.unheeded(self._process, HEED)]:
            return [self._given_up(each) for each in unheeded]
        try:
            process = self.living()
        except SlipstreamError as error:
            return self._failed(self._replies.all(), error)
        try:
            self._replies.submit(process)
            outputs = process.receive()
        except ProcessLostError as lost:
            return self._after_loss(process, lost)
        except OverdueError as overdue:
            self._replies.lost(process)
            slow = SettingsError(
                f"Preparing the reply took more than {TEXT:g} s, so it was stopped. Simplify its grammar or schema."
            )
            return self._failed([each for each in self._replies.all() if each.number == overdue.number], slow)
        if outputs:
            self._losses.forgive(IDLE)
        return [each for each in outputs if self._noted(each)]

    def _after_loss(self, process: ModelProcess, lost: ProcessLostError) -> list[Output]:
        """Record a loss. Return an error output for each reply at which the process was lost too often."""
        lost_there = self._replies.lost(process)
        blamed: list[tuple[list[LiveReply], Hashable]] = [([each], each.place) for each in lost_there]
        outputs = list[Output]()
        for replies, place in blamed or [(self._replies.all(), IDLE)]:
            try:
                self.note_loss(lost, place)
            except ModelError as error:
                outputs += self._failed(replies, error)
        return outputs

    def _failed(self, replies: Sequence[LiveReply], error: Exception) -> list[Output]:
        for each in replies:
            self._replies.remove(each.number)
        return [Output(each.number, error) for each in replies]

    def _given_up(self, reply: LiveReply) -> Output:
        """Return the last output of a cancelled reply without waiting for its process."""
        self._replies.remove(reply.number)
        stats = Stats(steps=reply.passes, decode_seconds=sum(each.seconds for each in reply.passes))
        return Output(reply.number, Chunk("", finish_reason="cancelled", stats=stats))

    def _noted(self, output: Output) -> bool:
        """Add an output to its reply and to the trace. Return whether the reply is still read."""
        number, came = output
        if not self._replies.take(output):
            return False
        if self._trace and isinstance(came, Chunk) and came.made and came.made.why:
            n = len(reply.passes) if (reply := self._replies.get(number)) else 0
            if problem := self._trace.write(TracedPass(number, n, came.made, came.made.why)):
                self._say(problem)
        return True

    def cancel(self, number: int) -> None:
        """See Engine."""
        reply = self._replies.get(number)
        if reply is not None and reply.cancelled_at is None:
            reply.cancelled_at = time.monotonic()
            if reply.process is not None:
                with suppress(ProcessLostError):
                    reply.process.cancel(number)

    def end(self, number: int) -> None:
        """See Engine."""
        reply = self._replies.remove(number)
        if reply is not None and reply.process is not None and reply.process.is_alive:
            with suppress(ProcessLostError):
                reply.process.cancel(number)

    def passes(self, first: int = 0) -> tuple[Pass, ...]:
        """See Engine."""
        return tuple(self._last.passes[first:]) if self._last else ()

    def tend(self) -> None:
        """See Engine; a lost process is not restarted for this."""
        if self._process.is_alive:
            self._ask("tend")

    def close(self) -> None:
        """Free the models; calls in progress fail."""
        self._is_closed = True
        self._process.close()

    @property
    def _status(self) -> Status:
        return self._process.status

    @property
    def holds_one(self) -> bool:
        """See Engine."""
        return self._status.holds_one

    @property
    def n_held(self) -> int:
        """See Engine."""
        return self._status.n_held

    @property
    def memory_level(self) -> str:
        """See Engine."""
        return self._status.memory_level

    @property
    def given_up(self) -> str:
        """See Engine."""
        return self._status.given_up

    @property
    def learning(self) -> str:
        """See Engine."""
        return self._status.learning
