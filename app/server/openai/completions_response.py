"""Replies in the format of /v1/completions: one body, or a stream of pieces."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel

from app.server.fingerprint import fingerprint
from app.server.logprobs import TextLogprobs, text_logprobs
from app.server.openai.common import DONE, FinishReason, new_id, now
from app.server.task_response import Formatter, by_reply
from app.server.usage import Tally, Timings, Usage
from app.server.wire import Event
from app.shown_tokens import ShownToken, ShownTokens
from runtime.engine import Chunk, Engine

Reply = list[Chunk]
Shown = Sequence[ShownToken] | None  # None: an event without text


class TextChoice(BaseModel):
    """One of the texts: those for the first prompt come first."""

    index: int
    text: str
    finish_reason: FinishReason
    logprobs: TextLogprobs | None


class TextCompletion(BaseModel):
    """The body that answers a request to /v1/completions; llama.cpp's clients ask without /v1, and read `content`."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[TextChoice]
    content: str
    usage: Usage
    timings: Timings


@dataclass(frozen=True, slots=True)
class CompletionExtras:
    """The requested fields besides the text, and how many of the generated texts to send for each prompt."""

    logprobs: bool
    usage: bool  # in a stream
    n: int
    n_made: int


class CompletionFormatter(Formatter):
    """Writes text completions, each after its echo."""

    done = DONE

    def __init__(self, engine: Engine, wanted: CompletionExtras, echoes: Sequence[str]) -> None:
        self.engine, self.wanted, self.echoes = engine, wanted, echoes
        self.head: Event = {
            "id": new_id("cmpl-"),
            "object": "text_completion",
            "created": now(),
            "model": engine.pair.name,
            "system_fingerprint": fingerprint(engine),
        }
        self._tally = Tally(len(echoes), wanted.n_made)
        self._shown = ShownTokens(engine)  # of the current text

    def first_events(self) -> Iterable[Event]:
        """Return the echo of the first text."""
        return self._echo_events(0)

    def _echo_events(self, index: int) -> Iterator[Event]:
        if echo := self.echoes[index // self.wanted.n]:
            yield self._event(index, echo)

    def chunk_events(self, chunk: Chunk) -> Iterator[Event]:
        """Yield text and the log probabilities of its tokens."""
        shown = self._shown.read(chunk) if self.wanted.logprobs else []
        if chunk.text or shown:
            yield self._event(self._tally.n_ended, chunk.text, shown)

    def last_events(self, last: Chunk) -> Iterator[Event]:
        """Yield the finish reason, then the next text's echo, or the numbers in the last event."""
        finish = self._event(self._tally.n_ended, "", finish_reason=last.finish_reason)
        self._shown = ShownTokens(self.engine)
        self._tally.add(last)
        if not self._tally.is_complete:
            yield finish
            yield from self._echo_events(self._tally.n_ended)
        elif self.wanted.usage:
            yield finish
            yield self.head | {"choices": []} | self._tally.usage() | self._tally.timings()
        else:
            yield finish | self._tally.timings()

    def _event(self, index: int, text: str, shown: Shown = None, finish_reason: str | None = None) -> Event:
        event = self.head | {"choices": [self._choice(index, text, shown, finish_reason)]}
        event |= {"content": text, "stop": finish_reason is not None}
        return event | {"usage": None} if self.wanted.usage else event

    def _choice(self, index: int, text: str, shown: Shown, finish_reason: str | None) -> Event:
        logprobs = text_logprobs(self.engine, shown) if self.wanted.logprobs and shown is not None else None
        return {"index": index, "text": text, "finish_reason": finish_reason, "logprobs": logprobs}

    def body(self, chunks: Sequence[Chunk]) -> Event:
        """Return the body of TextCompletion."""
        replies, n_made, choices = by_reply(chunks), self.wanted.n_made, list[Event]()
        for reply in replies:
            self._tally.add(reply[-1])
        for i, echo in enumerate(self.echoes):
            for reply in best(replies[i * n_made : (i + 1) * n_made], self.wanted.n):
                reader, text = ShownTokens(self.engine), echo + "".join(chunk.text for chunk in reply)
                shown = [token for chunk in reply for token in reader.read(chunk)]
                choices.append(self._choice(len(choices), text, shown, reply[-1].finish_reason))
        found: Event = {"choices": choices, "content": choices[0]["text"], "stop": True}
        return self.head | found | self._tally.usage() | self._tally.timings()


def best(replies: Sequence[Reply], n: int) -> Sequence[Reply]:
    """Return the `n` replies with the highest mean log probability, best first. Exactly `n` replies are returned
    unsorted.
    """
    return replies if len(replies) == n else sorted(replies, key=mean_logprob, reverse=True)[:n]


def mean_logprob(reply: Reply) -> float:
    """Return the mean log probability of a reply's tokens. An empty reply ranks last."""
    found = [entry.logprob for chunk in reply for entry in chunk.logprobs]
    return sum(found) / len(found) if found else -math.inf
