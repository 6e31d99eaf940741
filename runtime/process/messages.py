"""What goes between the process that has the models and the one that people meet, and how. Plain data.

What goes with every token goes as bare tuples, which are packed and unpacked in a twentieth of the time of objects.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from runtime.engine.engine import EngineFacts
from runtime.engine.output import Chunk, Output
from runtime.speculative.control.explain import Pass

PIPE = 4096  # bytes that can be written although the other side does not read


class Call(NamedTuple):
    """Something to be done, for the reply of that number; 0: for none."""

    name: str
    args: tuple[Any, ...] = ()
    named: Mapping[str, Any] = {}
    number: int = 0


class Progress(NamedTuple):
    """How far loading has come."""

    what: str
    share: float


class Status(NamedTuple):
    """What changes while a pair is loaded, as the door names it."""

    holds_one: bool
    n_held: int
    memory_level: str
    given_up: str
    learning: str = ""


class Opened(NamedTuple):
    """The pair is loaded."""

    facts: EngineFacts
    status: Status


class Failed(NamedTuple):
    """A call raised this, or the reply of that number did."""

    error: Exception
    number: int = 0


def send(pipe: Connection, *messages: object) -> None:
    """Raises OSError where nobody is there any more."""
    pipe.send_bytes(pack(*messages))


def pack(*messages: object) -> bytes:
    """Raises what pickling raises."""
    return pickle.dumps([bare(message) for message in messages], pickle.HIGHEST_PROTOCOL)


def bare(message: object) -> object:
    """As it goes through a pipe."""
    if isinstance(message, Output) and isinstance(message.came, Chunk):
        number, chunk = message.number, message.came
        made = None if chunk.made is None else tuple(chunk.made)
        return (
            number, chunk.text, chunk.tokens, chunk.drafted, chunk.pieces, chunk.logprobs, chunk.finish_reason,
            chunk.notice, chunk.stats, chunk.stop, made, chunk.n_read,
        )  # fmt: skip
    return tuple(message) if isinstance(message, Call) else message


def receive_all(pipe: Connection) -> list[Any]:
    """What was sent at once. Raises EOFError and OSError where nobody is there any more."""
    messages: list[Any] = pickle.loads(pipe.recv_bytes())
    return messages


def receive(pipe: Connection) -> Any:
    """What was sent alone. Raises as `receive_all` does."""
    return receive_all(pipe)[0]


def as_output(message: Any) -> Output | None:
    """What was sent as an output, or as a reply's failure; None for anything else."""
    if type(message) is tuple and message:
        number, *fields, made, n_read = message
        fields += (None if made is None else Pass(*made), n_read)
        return Output(number, Chunk(*fields))
    return Output(message.number, message.error) if isinstance(message, Failed) and message.number else None
