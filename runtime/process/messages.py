"""What goes between the process that has the models and the one that people meet. Plain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from runtime.engine.engine import EngineFacts
from runtime.engine.reply import Chunk


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

    turn_seconds: float
    n_held: int
    memory_level: str
    given_up: str


class Opened(NamedTuple):
    """The pair is loaded."""

    facts: EngineFacts
    status: Status


class Stepped(NamedTuple):
    """A reply has advanced."""

    chunk: Chunk
    status: Status


class Failed(NamedTuple):
    """A call raised this."""

    error: Exception
