"""Outputs of a reply: pieces of text with their tokens and statistics. Plain data."""

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


Sink = Callable[[Chunk | Exception], None]  # gets the outputs of a reply; must return quickly and raise nothing


class Output(NamedTuple):
    """A step's result for the sequence with this number: a piece of its reply, or the error that ended it."""

    number: int
    came: Chunk | Exception


def ignore(output: Chunk | Exception) -> None:
    """Drop an output that nobody reads."""
