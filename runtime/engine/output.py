"""What comes of replies: pieces of text with their tokens and numbers. Plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from runtime.engine.stats import Stats
from runtime.sampling.logits import TokenLogprobs
from runtime.speculative.control.explain import Pass


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a reply. The last one has a finish reason and the final stats; one that only tells how much of the
    prompt has been read has the stats so far.
    """

    text: str
    tokens: tuple[int, ...] = ()
    drafted: tuple[bool, ...] = ()  # which of the tokens came from a draft
    pieces: tuple[str, ...] = ()  # the text by token, so that drafted ones can be shown; joined it is `text`
    logprobs: tuple[TokenLogprobs, ...] = ()  # one per token, where they were asked for
    finish_reason: str | None = None  # stop, length, cancelled
    notice: str = ""  # a sentence for the person, such as that the context is full
    stats: Stats | None = None
    stop: str = ""  # the stop string that ended the reply, in the last one
    made: Pass | None = None  # the pass that brought it
    n_read: int = 0  # tokens of the prompt that have been read; 0 once that is done


class Output(NamedTuple):
    """What a step brought the sequence of that number: a piece of its reply, or the error that ended it."""

    number: int
    came: Chunk | Exception
