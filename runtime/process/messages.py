"""Messages between the model process and its client, and their encoding. Plain data.

Messages sent for every token are bare tuples, which are pickled and unpickled in a twentieth of the time of objects.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from runtime.engine.engine import EngineFacts
from runtime.engine.output import Chunk, Output
from runtime.engine.status import Status
from runtime.speculative.control.explain import Pass


class Call(NamedTuple):
    """A method call."""

    name: str
    args: tuple[Any, ...] = ()
    named: Mapping[str, Any] = {}


class Progress(NamedTuple):
    """Progress of loading: the item being loaded and the fraction loaded."""

    what: str
    share: float


class Opened(NamedTuple):
    """The pair is loaded."""

    facts: EngineFacts
    status: Status


class Failed(NamedTuple):
    """The error of a call, or of the reply with this number."""

    error: Exception
    number: int = 0


def send(pipe: Connection, *messages: object) -> None:
    """Send messages as one. Raises OSError if the other side is gone."""
    pipe.send_bytes(pack(*messages))


def pack(*messages: object) -> bytes:
    """Return messages as bytes. Raises what pickling raises."""
    return pickle.dumps([bare(message) for message in messages], pickle.HIGHEST_PROTOCOL)


def bare(message: object) -> object:
    """Return a message in the form that is pickled."""
    if isinstance(message, Output) and isinstance(message.came, Chunk):
        number, chunk = message.number, message.came
        made = None if chunk.made is None else tuple(chunk.made)
        return (
            number, chunk.text, chunk.tokens, chunk.drafted, chunk.pieces, chunk.logprobs, chunk.finish_reason,
            chunk.notice, chunk.stats, chunk.stop, made, chunk.n_read,
        )  # fmt: skip
    return tuple(message) if isinstance(message, Call) else message


def receive_all(pipe: Connection) -> list[Any]:
    """Return the messages that were sent as one. Raises EOFError and OSError if the other side is gone."""
    messages: list[Any] = pickle.loads(pipe.recv_bytes())
    return messages


def receive(pipe: Connection) -> Any:
    """Return a message that was sent alone. Raises as `receive_all` does."""
    return receive_all(pipe)[0]


def as_output(message: Any) -> Output | None:
    """Return a received output or a reply's failure as an output; None for other messages."""
    if type(message) is tuple and message:
        number, *fields, made, n_read = message
        fields += (None if made is None else Pass(*made), n_read)
        return Output(number, Chunk(*fields))
    return Output(message.number, message.error) if isinstance(message, Failed) and message.number else None
