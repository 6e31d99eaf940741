"""Messages to the other side of a pipe: sent on a thread, so that no sender waits while the other side writes too, and
outputs sent together, because each message wakes two processes, which need cores that the models use.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from multiprocessing.connection import Connection
from queue import SimpleQueue
from threading import Thread

from runtime.engine.output import Output

SEND_INTERVAL = 0.012  # seconds between two messages while steps are short
# The same with several replies, each of which costs a write of the server and wakes a reader; still 40 times a second
SEND_INTERVAL_TOGETHER = 0.024


class Outgoing:
    """Messages that are sent in order. When the other side is gone they are dropped; its reader notices."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe, self._queue = pipe, SimpleQueue[bytes]()
        self._thread = Thread(target=self._send, daemon=True)
        self._thread.start()

    def put(self, message: bytes) -> None:
        """Send a message soon."""
        self._queue.put(message)

    def end(self) -> None:
        """End the thread; the other side must be gone, or may read what was put."""
        self._queue.put(b"")
        self._thread.join()

    def _send(self) -> None:
        while message := self._queue.get():
            try:
                self._pipe.send_bytes(message)
            except OSError:
                return


class Outbox:
    """Unsent outputs. Only later tokens of a reply wait; its first token, its end and its errors are urgent."""

    def __init__(self) -> None:
        self._outputs = list[Output]()
        self._sent_at = 0.0
        self._step_seconds = 0.0  # expected time of a step, by the longest recent ones
        self._silent = set[int]()  # replies without a token so far
        self.has_first = self._is_urgent = False  # whether outputs include a reply's first token; its beginning or end

    def begin(self, number: int) -> None:
        """Record that a reply begins."""
        self._silent.add(number)

    def add(self, outputs: Iterable[Output], seconds: float) -> None:
        """Add the outputs of a step that took `seconds`."""
        self._step_seconds = max(seconds, self._step_seconds / 2)
        for output in outputs:
            self._outputs.append(output)
            number, came = output
            if isinstance(came, Exception) or came.made is None:
                self._is_urgent = True
            if isinstance(came, Exception) or came.finish_reason:
                self._silent.discard(number)
            elif number in self._silent and came.tokens:
                self._silent.discard(number)
                self.has_first = True

    @property
    def should_send(self) -> bool:
        """Whether to send now: an output is urgent, or one more step would exceed the interval."""
        if self.has_first or self._is_urgent:
            return True
        n_replies = len({number for number, _ in self._outputs})
        interval = SEND_INTERVAL if n_replies == 1 else SEND_INTERVAL_TOGETHER
        return bool(self._outputs) and time.perf_counter() + self._step_seconds - self._sent_at >= interval

    def take(self) -> list[Output]:
        """Return and remove all outputs, to be sent now."""
        outputs, self._outputs = self._outputs, []
        self._sent_at, self.has_first, self._is_urgent = time.perf_counter(), False, False
        return outputs
