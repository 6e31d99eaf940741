"""Messages between the model process and its client, and their encoding. They are distinguished by their types.

Outputs, which are sent for every token, are pickled as bare tuples in a list of their own, in a twentieth of the time
that objects take. They are sent on a thread, so that no sender waits while the other side writes too, and outputs
together, because each message wakes two processes, which need cores that the models use.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterable, Mapping
from multiprocessing.connection import Connection
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple

from runtime.engine.facts import EngineFacts
from runtime.engine.output import Chunk, Output, Status
from runtime.loading.options import Options
from runtime.models.registry import Pair
from runtime.speculative.control.explain import Pass

SEND_INTERVAL = 0.012  # seconds between two messages while steps are short
# The same with several replies, each of which costs a write of the server and wakes a reader; still 40 times a second
SEND_INTERVAL_TOGETHER = 0.024


class PairToOpen(NamedTuple):
    """The pair to load; the first message to the process."""

    pair: Pair
    options: Options


class UsesGpu(NamedTuple):
    """Whether the process uses a GPU."""

    has_gpu: bool


class Progress(NamedTuple):
    """Progress of loading: the item being loaded and the fraction loaded. While the process closes, a sign of life."""

    what: str
    share: float


class Opened(NamedTuple):
    """The pair is loaded."""

    facts: EngineFacts
    status: Status


class Cancel(NamedTuple):
    """The reply with this number is to end."""

    reply: int


class Call(NamedTuple):
    """A method call. Its number is that of its answer; 0: none is expected."""

    name: str
    args: tuple[Any, ...] = ()
    named: Mapping[str, Any] = {}
    number: int = 0


class Answered(NamedTuple):
    """The result of the call with this number."""

    number: int
    value: Any


class Failed(NamedTuple):
    """The error of the call with this number; 0: of loading."""

    number: int
    error: Exception


Message = Output | Status | PairToOpen | UsesGpu | Progress | Opened | Cancel | Call | Answered | Failed

Bare = tuple[Any, ...]  # an output in the form that is pickled


def send(pipe: Connection, *messages: Message) -> None:
    """Send messages as one. Raises OSError if the other side is gone."""
    pipe.send_bytes(pack(*messages))


def pack(*messages: Message) -> bytes:
    """Return messages as bytes. Raises what pickling raises."""
    outputs = [bare(each) for each in messages if isinstance(each, Output)]
    others = [each for each in messages if not isinstance(each, Output)]
    return pickle.dumps((outputs, others), pickle.HIGHEST_PROTOCOL)


def unpack(data: bytes) -> list[Any]:
    """Return the messages in these bytes, outputs first."""
    outputs, others = pickle.loads(data)
    return [*map(as_output, outputs), *others]


def bare(output: Output) -> Bare:
    """Return an output in the form that is pickled."""
    number, came = output
    if not isinstance(came, Chunk):
        return number, came
    made = None if came.made is None else tuple(came.made)
    return (
        number, came.text, came.tokens, came.drafted, came.pieces, came.logprobs, came.finish_reason, came.notice,
        came.stats, came.stop, made, came.n_read, came.surprise_limit,
    )  # fmt: skip


def as_output(fields: Bare) -> Output:
    """Return the output of which these are the fields."""
    number, *rest = fields
    if len(rest) == 1:
        return Output(number, rest[0])
    *more, made, n_read, limit = rest
    more += (None if made is None else Pass(*made), n_read, limit)
    return Output(number, Chunk(*more))


def receive_all(pipe: Connection) -> list[Any]:
    """Return the messages that were sent as one. Raises EOFError and OSError if the other side is gone."""
    return unpack(pipe.recv_bytes())


def receive(pipe: Connection) -> Any:
    """Return a message that was sent alone. Raises as `receive_all` does."""
    return receive_all(pipe)[0]


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
