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
from runtime.engine.output import Chunk, Output, Sink
from runtime.engine.status import Status
from runtime.engine.streams import PushedEngine
from runtime.engine.trace import TracedPass, TraceFile
from runtime.loading.options import Options
from runtime.models.registry import Pair
from runtime.process.doorbell import Doorbell
from runtime.process.losses import Losses
from runtime.process.messages import Call
from runtime.process.model_process import TEXT, ModelProcess, OverdueError, ProcessLostError
from runtime.process.questions import RemoteQuestions
from runtime.process.replies import LiveReplies, LiveReply
from runtime.process.texts import RemoteTexts
from runtime.speculative.control.explain import Pass

WORKER_TIMEOUT = 15.0  # seconds that a worker may take to be reachable again
HEED = 0.3  # seconds to wait for the end of a cancelled reply
CLOSED = "The model is closed."
SLOW = "Preparing the reply took more than {:g} s, so it was stopped. Simplify its grammar or schema."
IDLE = "idle"  # the place of a loss that no reply of the process can have caused
Say = Callable[[str], object]


def silent(text: object) -> None:
    """Ignore a message."""


class EngineProcess(RemoteQuestions, RemoteTexts, PushedEngine):
    """An engine in another process. One thread here receives from it, restarts it, and calls the sinks of replies.

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
        super().__init__()
        options = options or Options()
        self.pair, self.limits, self._say, self._losses, self._trace = pair, options.limits, say, Losses(options), trace
        self._lock, self._is_closed, self._replies, self._bell = threading.RLock(), False, LiveReplies(), Doorbell()
        self._on_lost: Callable[[Exception], None] = silent
        self._numbers = trace.sequences if trace else count(1)
        self._last: LiveReply | None = None
        self._process = self._started(on_progress or (lambda what, share: True))
        self.facts = self._process.facts
        if self._losses.is_reduced:
            lost = f"the model's process was lost while it loaded and was started again{self._losses.consequence}"
            self.facts = replace(self.facts, left_out="; ".join(filter(None, (self.facts.left_out, lost))))
        threading.Thread(target=self._run, name="outputs", daemon=True).start()

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
                    self._process = self._started(self._goes_on, WORKER_TIMEOUT)
                except KeyboardInterrupt:  # closed meanwhile
                    raise ModelError(CLOSED) from None
                self._bell.ring()
                self.facts = self._process.facts
                lacking = f" {self.facts.left_out}." if self.facts.left_out else ""
                how = f"has been started again{self._losses.consequence}.{lacking}"
                self._say(f"The model's process was lost and {how}")
            return self._process

    def _goes_on(self, what: str, share: float) -> bool:
        """Return whether a restart goes on; cancelled replies do not wait for its end."""
        self._give_up()
        return not self._is_closed

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

    def _run(self) -> None:
        """Receive from the process until the engine is closed."""
        end: Exception = ModelError(CLOSED)
        try:
            while not self._is_closed:
                (self.advance if self.is_answering else self._rest)()
        except Exception as fault:  # of this thread, not of a reply: no further one can be made
            if not self._is_closed:
                self._is_closed, end = True, fault
                self._on_lost(fault)
        self._fail(self._replies.all(), end)

    def _rest(self) -> None:
        """Wait for a message or a reply. A process that is lost is restarted by the next request."""
        process = self._process

        def has_work() -> bool:
            return self._is_closed or self.is_answering or self._process is not process

        with suppress(ProcessLostError):
            if process.is_lost:
                self._bell.wait(None, has_work)
            elif process.wait(self._bell, has_work):
                process.receive()

    @property
    def is_answering(self) -> bool:
        """Whether any reply is being generated."""
        return bool(self._replies.all())

    def watch(self, on_lost: Callable[[Exception], None]) -> None:
        """See Engine."""
        self._on_lost = on_lost

    def add(self, ask: Ask, sink: Sink) -> int:
        """See Engine; every error is an output."""
        number = next(self._numbers)
        self._last = LiveReply(number, replace(ask, is_traced=ask.is_traced or self._trace is not None), sink)
        self._replies.add(self._last)
        if self._is_closed:
            self._fail([self._last], ModelError(CLOSED))
        elif self._process.is_alive:  # else it is submitted once it was restarted
            self._replies.submit(self._process)
        self._bell.ring()
        return number

    def advance(self) -> None:
        """Pass on what the process sends within a moment. Replies whose process was lost continue in a new one."""
        self._give_up()
        try:
            process = self.living()
        except SlipstreamError as error:
            self._fail(self._replies.all(), error)
            return
        self._replies.submit(process)
        outputs = list[Output]()
        try:
            outputs = process.receive()
        except ProcessLostError as lost:
            self._note_losses(process, lost)
        except OverdueError as overdue:
            self._replies.lost(process)
            self._push(Output(overdue.number, SettingsError(SLOW.format(TEXT))))
        if outputs:
            self._losses.forgive(IDLE)
        for output in outputs:
            self._push(output)

    def _note_losses(self, process: ModelProcess, lost: ProcessLostError) -> None:
        """Record a loss. Replies at which the process was lost too often end with an error."""
        blamed: list[tuple[list[LiveReply], Hashable]] = [([each], each.place) for each in self._replies.lost(process)]
        for replies, place in blamed or [(self._replies.all(), IDLE)]:
            try:
                self.note_loss(lost, place)
            except ModelError as error:
                self._fail(replies, error)

    def _fail(self, replies: Sequence[LiveReply], error: Exception) -> None:
        for each in replies:
            self._push(Output(each.number, error))

    def _give_up(self) -> None:
        """End cancelled replies that their process does not end in time."""
        for reply in self._replies.unheeded(self._process, HEED):
            self._push(Output(reply.number, reply.cancelled()))

    def _push(self, output: Output) -> None:
        """Add an output to its reply and to the trace, and pass it on, unless the reply is no longer read."""
        number, came = output
        if (reply := self._replies.take(output)) is None:
            return
        made = came.made if isinstance(came, Chunk) else None
        if self._trace and made and made.why:
            problem = self._trace.write(TracedPass(number, len(reply.passes), made, made.why))
            if problem:
                self._say(problem)
        reply.sink(came)

    def cancel(self, number: int) -> None:
        """See Engine."""
        reply = self._replies.get(number)
        if reply is not None and reply.cancelled_at is None:
            reply.cancelled_at = time.monotonic()
            if reply.process is not None:
                reply.process.cancel(number)

    def end(self, number: int) -> None:
        """See Engine."""
        reply = self._replies.remove(number)
        if reply is not None and reply.process is not None:
            reply.process.cancel(number)

    def passes(self, first: int = 0) -> tuple[Pass, ...]:
        """See Engine."""
        return tuple(self._last.passes[first:]) if self._last else ()

    def close(self) -> None:
        """Free the models; calls in progress fail."""
        self._is_closed = True
        self._process.close()
        self._bell.ring()

    @property
    def status(self) -> Status:
        """See Engine."""
        return self._process.status
