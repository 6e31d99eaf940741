"""Messages between the model process and its client, and their encoding. Plain data, told apart by their types.

Outputs, which are sent for every token, are pickled as bare tuples in a list of their own, in a twentieth of the time
that objects take.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from runtime.engine.engine import EngineFacts
from runtime.engine.output import Chunk, Output, Status
from runtime.loading.options import Options
from runtime.models.registry import Pair
from runtime.speculative.control.explain import Pass


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
