"""An engine whose models are in a separate process. If that crashes, it is restarted, the tokens so far are prefilled
again, and the reply continues with the same text.

The state of a reply is its token ids, and the KV cache can be rebuilt from them, so the ids kept here are enough.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

from runtime.core.backend import OnProgress
from runtime.core.errors import ModelError, SettingsError, SlipstreamError
from runtime.engine.engine import Ask
from runtime.engine.output import Chunk, Output, Sink, Status
from runtime.engine.process.calls import RemoteCalls
from runtime.engine.process.kept import CLOSED, KeptProcess
from runtime.engine.process.model_process import LAST, POLL_SECONDS, ModelProcess, ProcessLostError
from runtime.engine.process.replies import LiveReplies, LiveReply
from runtime.engine.streams import PushedEngine
from runtime.engine.trace import TracedPass, TraceFile
from runtime.loading.options import Options
from runtime.models.registry import Pair
from runtime.speculative.control.explain import Pass

REST = 0.2  # seconds of one poll of the process while no reply is generated
CANCEL_SECONDS = 0.3  # seconds to wait for the end of a cancelled reply
BEGIN = 15.0  # seconds that a reply may take to begin
SLOW = "Preparing the reply took more than {:g} s, so it was stopped. Simplify its grammar or schema."
FATAL = "Preparing the reply ended the models' process, probably as its grammar or schema nests deeply. Simplify it."
Say = Callable[[str], object]


def silent(text: object) -> None:
    """Ignore a message."""


class EngineProcess(RemoteCalls, PushedEngine):
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
        options = options or Options()
        on_progress = on_progress or (lambda what, share: True)
        super().__init__(KeptProcess(pair, options, on_progress, self._give_up, self._restarted))
        self.pair, self.limits, self.facts = pair, options.limits, self.kept.current.facts
        self._say, self._trace = say, trace
        self._replies = LiveReplies(self.rest)
        self._on_lost: Callable[[Exception], None] = silent
        self._numbers = trace.sequences if trace else count(1)
        self._last: LiveReply | None = None
        self._n_drafts = 0  # bytes of the drafts that were closed last
        threading.Thread(target=self._run, name="outputs", daemon=True).start()

    def rest(self) -> None:
        """Do what is to be done when the last reply has ended: nothing here. Called on any thread."""

    def _restarted(self, message: str) -> None:
        self.facts = self.kept.current.facts
        self._say(message)

    def _run(self) -> None:
        """Receive from the process until the engine is closed."""
        end: Exception = ModelError(CLOSED)
        try:
            while not self.kept.is_closed:
                self.advance()
        except Exception as fault:  # of this thread, not of a reply: no further one can be made
            if not self.kept.is_closed:
                self.kept.is_closed, end = True, fault
                self._on_lost(fault)
        self._fail(self._replies.all(), end)

    def pending_bytes(self, files: Sequence[Path] = ()) -> int:
        """See Engine."""
        if self.facts.has_gpu:
            return 0
        n_needed = self.facts.n_needed - (self._n_drafts if self.status.given_up else 0)
        others = {path.resolve() for path in files}
        shared = sum(self.kept.current.shared_bytes(path) for path in self.pair.files if path.resolve() in others)
        return max(0, n_needed - self.kept.current.own_bytes - shared)

    @property
    def is_answering(self) -> bool:
        """Whether any reply is being generated."""
        return bool(self._replies.all())

    def close_drafts(self) -> int:
        """See Engine."""
        n_bytes = super().close_drafts()
        self._n_drafts = n_bytes or self._n_drafts
        return n_bytes

    def watch(self, on_lost: Callable[[Exception], None]) -> None:
        """See Engine."""
        self._on_lost = on_lost

    def add(self, ask: Ask, sink: Sink) -> int:
        """See Engine; every error is an output."""
        number = next(self._numbers)
        reply = LiveReply(number, replace(ask, is_traced=ask.is_traced or self._trace is not None), sink)
        self._last = self._last if ask.is_ahead else reply
        self._replies.add(reply)
        if self.kept.is_closed:
            self._fail([reply], ModelError(CLOSED))
        else:
            self._replies.submit(self.kept.current)
        return number

    def advance(self) -> None:
        """Pass on what the process sends within a moment. Replies whose process was lost continue in a new one; while
        there are none, a lost process is left to the next request.
        """
        self._give_up()
        if not self.is_answering:
            with suppress(SlipstreamError):  # the next request tries again
                self.kept.restore()
        process = self.kept.current
        self._replies.submit(process)
        try:
            outputs = process.receive(POLL_SECONDS if self.is_answering else REST)
        except ProcessLostError as lost:
            self._note_loss(process, lost)
            self._go_on()
            return
        for output in outputs:
            self._push(output)
        if self.is_answering and (process.status.preparing or not outputs):
            self._end_stuck(process)

    def _end_stuck(self, process: ModelProcess) -> None:
        """Kill a process that does not end a cancelled reply, or in which a reply takes too long to begin; that one
        ends with an error.
        """
        if (reply := self._replies.overdue(process, BEGIN, LAST)) is None:
            return
        process.kill()
        if reply.is_wanted:
            self._fail([reply], SettingsError(SLOW.format(BEGIN)))
        self._go_on()

    def _go_on(self) -> None:
        """Restart a lost process for the replies that there are."""
        if not self.is_answering:
            time.sleep(POLL_SECONDS)
            return
        try:
            self.kept.living()
        except SlipstreamError as error:
            self._fail(self._replies.all(), error)

    def _note_loss(self, process: ModelProcess, lost: ProcessLostError) -> None:
        """Record a loss, after which a reply that ran alone ends with an error if the process was lost there too often,
        and at once if its grammar was being compiled, which is no fault of drafts or devices. Of several, none is
        blamed: they are submitted one by one, so that the cause is alone the next time.
        """
        self._fail([each for each in self._replies.all() if each.ask.is_ahead], lost)  # nobody waits for these
        ran = self._replies.lost(process)
        if len(ran) != 1:
            return
        if ran[0].is_compiling:
            self._fail(ran, SettingsError(FATAL))
            return
        try:
            self.kept.note_loss(lost, ran[0].place)
        except ModelError as error:
            self._fail(ran, error)

    def _fail(self, replies: Sequence[LiveReply], error: Exception) -> None:
        for each in replies:
            self._push(Output(each.number, error))

    def _give_up(self) -> None:
        """End cancelled replies that their process does not end in time."""
        for reply in self._replies.unheeded(self.kept.current, CANCEL_SECONDS):
            if self._replies.leave(reply.number):
                reply.sink(reply.cancelled())

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
        self._replies.cancel(number)

    def end(self, number: int) -> None:
        """See Engine."""
        self._replies.leave(number)

    def passes(self, first: int = 0) -> tuple[Pass, ...]:
        """See Engine."""
        return tuple(self._last.passes[first:]) if self._last else ()

    def close(self) -> None:
        """Free the models; calls in progress fail."""
        self._replies.cancel_ahead()
        self.kept.close(is_busy=any(each.is_wanted for each in self._replies.all()))

    @property
    def status(self) -> Status:
        """See Engine."""
        return self.kept.current.status
