"""What an engine returns: pieces of a reply with their tokens and statistics, and its own state. Plain data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from runtime.engine.stats import Stats
from runtime.sampling.logits import TokenLogprobs
from runtime.speculative.control.explain import Pass


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a reply.

    The last one has a finish reason and the final statistics. A chunk that only reports prefill progress has the
    statistics so far.
    """

    text: str
    tokens: tuple[int, ...] = ()
    drafted: tuple[bool, ...] = ()  # for each token, whether it was an accepted draft token
    pieces: tuple[str, ...] = ()  # the text by token, so that draft tokens can be marked; joined they are `text`
    logprobs: tuple[TokenLogprobs, ...] = ()  # one per token, if requested
    finish_reason: str | None = None  # stop, length, cancelled
    notice: str = ""  # a sentence for the user, such as that the context is full
    stats: Stats | None = None
    stop: str = ""  # the stop string that ended the reply, in the last chunk
    made: Pass | None = None  # the pass that generated it
    n_read: int = 0  # prompt tokens read so far, while the prompt is read and in the first chunk after it
    surprise_limit: float | None = None  # with mirostat, that of the next token, to resume from


Sink = Callable[[Chunk | Exception], None]  # gets the outputs of a reply; must return quickly and raise nothing


class Output(NamedTuple):
    """A step's result for the sequence with this number: a piece of its reply, or the error that ended it."""

    number: int
    came: Chunk | Exception


def ignore(output: Chunk | Exception) -> None:
    """Drop an output that nobody reads."""


class Status(NamedTuple):
    """The state of an engine."""

    n_running: int = 0  # replies
    n_waiting: int = 0  # replies, until others have ended
    n_held: int = 0  # cached conversations
    memory_level: str = "OK"  # at the last token: OK, TIGHT or CRITICAL
    given_up: str = ""  # what is suspended because memory is short, and why, with numbers
    learning: str = ""  # state of the head's training, or why there is none, in a clause; "": the pair asks for none
    ahead: tuple[int, int] = (0, 0)  # tokens read ahead, and those of them that later prompts had in the cache
    preparing: tuple[int, ...] = ()  # numbers of requests whose prompts are encoded and whose grammars are compiled
