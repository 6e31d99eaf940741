"""State of the replies that the model process generates, so that they can be resumed after the process was lost."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from runtime.engine.engine import Ask
from runtime.engine.output import Chunk, Output, Sink
from runtime.engine.process.model_process import ModelProcess
from runtime.engine.stats import Stats
from runtime.speculative.control.explain import Pass

NEAR = 32  # tokens of a reply that count as one place for losses


@dataclass(slots=True, eq=False)
class LiveReply:
    """One reply so far."""

    number: int
    ask: Ask
    sink: Sink
    reply_tokens: list[int] = field(default_factory=list)
    passes: list[Pass] = field(default_factory=list)
    cancelled_at: float | None = None
    process: ModelProcess | None = None  # the process that has it
    submitted_at: float = 0.0
    prepared_since: float = math.inf  # when that process first reported that it prepares it
    has_begun: bool = False  # whether it ever ran
    runs: bool = False  # whether it runs in that process; else it waits there, and cannot be why the process is lost
    suspected_at: tuple[int, int] | None = None  # its place when it was last lost together with others

    def cancelled(self) -> Chunk:
        """Return the last chunk of a reply that was cancelled and is not waited for."""
        stats = Stats(steps=self.passes, decode_seconds=sum(each.seconds for each in self.passes))
        return Chunk("", finish_reason="cancelled", stats=stats)

    @property
    def place(self) -> tuple[int, int]:
        """The current part of the reply, by which losses are counted."""
        return self.number, len(self.reply_tokens) // NEAR

    @property
    def is_suspect(self) -> bool:
        """Whether it may be why a process was lost, and has not advanced since."""
        return self.suspected_at == self.place

    @property
    def is_preparing(self) -> bool:
        """Whether its process encodes its prompt and compiles its grammar."""
        return self.process is not None and self.number in self.process.status.preparing

    @property
    def is_compiling(self) -> bool:
        """Whether its grammar may be why the process is lost now."""
        return self.is_preparing and self.ask.grammar is not None

    @property
    def is_wanted(self) -> bool:
        """Whether it was not cancelled."""
        return self.cancelled_at is None

    def is_overdue(self, silent_since: float, begin: float, heed: float) -> bool:
        """Return whether its process, silent since then, has not begun it within `begin` seconds, or not ended it
        within `heed` seconds after it was cancelled.
        """
        since, most = (self.submitted_at, begin) if self.cancelled_at is None else (self.cancelled_at, heed)
        return time.monotonic() - max(since, silent_since) > most


class LiveReplies:
    """The active replies. Those that were lost together are submitted again one by one, each after the one before has
    advanced, so that only the reply that crashes the process counts as the cause.
    """

    def __init__(self, on_last: Callable[[], None]) -> None:
        """`on_last` is called when the last reply has ended."""
        self._on_last = on_last
        self._live: dict[int, LiveReply] = {}
        self._left: dict[int, LiveReply] = {}  # those that are no longer read, until their process ends them
        self._lock = threading.RLock()

    def add(self, reply: LiveReply) -> None:
        """Add a reply, which `submit` will send. What is read ahead ends, also in the middle of a pass."""
        self.cancel_ahead()
        with self._lock:
            self._live[reply.number] = reply

    def cancel_ahead(self) -> None:
        """Cancel what is read ahead."""
        for each in self.all():
            if each.ask.is_ahead:
                self.cancel(each.number)

    def cancel(self, number: int) -> None:
        """Cancel a reply, here and in its process."""
        with self._lock:
            reply = self._live.get(number)
            if reply is None or not reply.is_wanted:
                return
            reply.cancelled_at = time.monotonic()
        if reply.process is not None:
            reply.process.cancel(number)

    def leave(self, number: int) -> LiveReply | None:
        """Cancel and remove a reply that is no longer read. Return it, or None if it has ended."""
        self.cancel(number)
        return self._remove(number, has_ended=False)

    def _remove(self, number: int, has_ended: bool) -> LiveReply | None:
        with self._lock:
            reply = self._live.pop(number, None)
            if has_ended:
                self._left.pop(number, None)
            elif reply is not None and reply.process is not None:
                self._left[number] = reply
            is_last = reply is not None and not self._live
        if is_last:
            self._on_last()
        return reply

    def submit(self, process: ModelProcess) -> None:
        """Send the replies that the process does not have yet, first those that ran before, if it is alive. While it
        has a suspect, the others wait.
        """
        with self._lock:
            self._left = {number: each for number, each in self._left.items() if each.process is process}
            waiting = [each for each in self._live.values() if each.process is not process and each.is_wanted]
            if not waiting or not process.is_alive:
                return
            for reply in sorted(waiting, key=lambda each: not each.has_begun):
                if any(each.is_suspect and each.process is process for each in self._live.values()):
                    return
                tokens, passes = tuple(reply.reply_tokens), tuple(reply.passes)
                ask = replace(reply.ask, is_admitted=reply.ask.is_admitted or reply.has_begun)
                process.add(reply.number, replace(ask, reply_tokens=tokens, passes=passes))
                reply.process, reply.runs = process, False
                reply.submitted_at, reply.prepared_since = time.monotonic(), math.inf

    def lost(self, process: ModelProcess) -> list[LiveReply]:
        """Return the replies that ran in a lost process, or if none did, those that it had; if there are several,
        they are suspects from now on. Those whose grammar was being compiled come before all.
        """
        with self._lock:
            had = [each for each in self._live.values() if each.process is process]
            compiling = [each for each in had if each.is_compiling]
            found = compiling or [each for each in had if each.runs] or had
            for each in found if len(found) > 1 else ():
                each.suspected_at = each.place
        return found

    def all(self) -> list[LiveReply]:
        """Return all active replies."""
        return list(self._live.values())

    def unheeded(self, process: ModelProcess, heed: float) -> list[LiveReply]:
        """Return cancelled replies that the process does not have, or did not end within `heed` seconds."""

        def is_unheeded(reply: LiveReply) -> bool:
            if reply.is_wanted:
                return False
            has_it = reply.process is process and process.is_alive
            return not has_it or reply.is_overdue(0.0, 0.0, heed)

        return [*filter(is_unheeded, self.all())]

    def overdue(self, process: ModelProcess, begin: float, heed: float) -> LiveReply | None:
        """Return a reply that the process had been preparing for longer than `begin` seconds at its last message, or,
        while it generates no other, one for which it takes too long (see `is_overdue`). During a long pass there are no
        messages, and what was being prepared may be ready.
        """
        theirs = [each for each in (*self._left.values(), *self._live.values()) if each.process is process]
        preparing = [each for each in theirs if each.is_preparing]
        for each in preparing:
            each.prepared_since = min(each.prepared_since, time.monotonic())
        late = (each for each in preparing if process.silent_since - each.prepared_since > begin)
        if not process.is_asked and (found := next(late, None)):
            return found
        if any(each.runs and each.is_wanted for each in theirs):
            return None
        return next((each for each in theirs if each.is_overdue(process.silent_since, begin, heed)), None)

    def take(self, output: Output) -> LiveReply | None:
        """Add an output to its reply, and return that; None if it is no longer read."""
        number, came = output
        with self._lock:
            if (reply := self._live.get(number)) is not None and isinstance(came, Chunk):
                reply.has_begun = reply.runs = True
                reply.reply_tokens += came.tokens
                if came.made is not None:
                    reply.passes.append(came.made)
                if came.surprise_limit is not None:
                    reply.ask = replace(reply.ask, surprise_limit=came.surprise_limit)
        has_ended = isinstance(came, Exception) or came.finish_reason is not None
        return self._remove(number, has_ended) if has_ended else reply
