"""Replies in the format of llama.cpp's /completion and /infill: a body for each reply, or a stream of pieces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, RootModel

from app.reply_text import ShownTokens
from app.server.generation import text_of_ids
from app.server.logprobs import TokenLogprob, token_logprobs, token_probs
from app.server.task import PromptIds
from app.server.task_response import Formatter, by_reply
from app.server.usage import ReplyProgress, Timings, timings
from app.server.wire import Event
from runtime.engine import Chunk, Engine
from runtime.engine.stats import Stats

if TYPE_CHECKING:
    from app.server.llamacpp.completion import LlamaCppRequest


class LlamaCppCompletion(BaseModel):
    """A reply to /completion or /infill; with `response_fields` it has only those."""

    content: str = ""
    index: int = 0
    tokens: list[int] = []
    stop: bool = True
    stop_type: Literal["limit", "eos", "word"] = "limit"
    stopping_word: str = ""
    model: str = ""
    prompt: str = ""
    generation_settings: dict[str, Any] = {}
    has_new_line: bool = False
    truncated: bool = False
    tokens_predicted: int = 0
    tokens_evaluated: int = 0
    tokens_cached: int = 0
    timings: Timings | dict[str, Any] = {}
    completion_probabilities: list[TokenLogprob | dict[str, Any]] = []


class LlamaCppBody(RootModel[LlamaCppCompletion | list[LlamaCppCompletion]]):
    """The body that answers /completion and /infill: a reply, or a list of several."""


class LlamaCppFormatter(Formatter):
    """Writes the replies of /completion and /infill, one after the other."""

    def __init__(self, engine: Engine, asked: LlamaCppRequest, prompts: Sequence[PromptIds]) -> None:
        self.engine, self.asked, self.prompts = engine, asked, prompts
        self.settings = asked.settings(engine)
        self._progress = ReplyProgress(asked.return_progress, asked.timings_per_token)
        self._index, self._has_new_line, self._shown = 0, False, ShownTokens(engine)

    def chunk_events(self, chunk: Chunk) -> Iterator[Event]:
        """Yield the text and its tokens, and the progress of the prefill if requested."""
        self._progress.see(chunk)
        self._has_new_line |= "\n" in chunk.text
        head: Event = {"index": self._index, "content": "", "tokens": [], "stop": False}
        if reading := self._progress.reading(chunk):
            yield head | reading | self._progress.time(chunk.n_read)
        if chunk.tokens or chunk.text:
            event = {"content": chunk.text, "tokens": list(chunk.tokens)}
            yield head | event | self._progress.time() | self._probabilities([chunk])

    def last_events(self, last: Chunk) -> Iterable[Event]:
        """Yield the numbers, without the text already sent, and advance to the next reply."""
        yield self._with_fields(self._final(last, "", []))
        self._advance()

    def body(self, chunks: Sequence[Chunk]) -> Event | list[Event]:
        """Return the body of LlamaCppBody."""
        bodies = [self._reply_body(reply) for reply in by_reply(chunks)]
        return bodies[0] if len(self.prompts) == 1 else bodies

    def _reply_body(self, chunks: Sequence[Chunk]) -> Event:
        text = "".join(chunk.text for chunk in chunks)
        tokens = [token for chunk in chunks for token in chunk.tokens] if self.asked.return_tokens else []
        self._has_new_line = "\n" in text
        body = self._with_fields(self._final(chunks[-1], text, tokens) | self._probabilities(chunks))
        self._advance()
        return body

    def _advance(self) -> None:
        """Advance to the next reply."""
        self._index, self._has_new_line, self._progress = self._index + 1, False, self._progress.again()
        self._shown = ShownTokens(self.engine)

    def _final(self, last: Chunk, text: str, tokens: list[int]) -> Event:
        """Return a reply's last event or body. `content` comes first, because llama.vim looks for it before it parses
        the JSON.
        """
        body: Event = {"content": text, "index": self._index, "tokens": tokens, "id_slot": 0, "stop": True}
        body |= {"stop_type": stop_type(last), "stopping_word": last.stop, "model": self.asked.reply_name(self.engine)}
        body |= {"has_new_line": self._has_new_line, "generation_settings": self.settings}
        body["prompt"] = text_of_ids(self.prompts[self._index], self.engine)
        return body | (self._numbers(last.stats) if last.stats else {"truncated": False})

    def _numbers(self, stats: Stats) -> Event:
        return {
            "truncated": stats.prompt_n + stats.predicted_n >= self.engine.facts.n_ctx,
            "tokens_predicted": stats.predicted_n,
            "tokens_evaluated": stats.prompt_n,
            "tokens_cached": stats.cached_n,
            "timings": timings(stats),
        }

    def _probabilities(self, chunks: Sequence[Chunk]) -> Event:
        shown = [token for chunk in chunks for token in self._shown.read(chunk)]
        found = (token_probs if self.asked.post_sampling_probs else token_logprobs)(self.engine, shown)
        return {"completion_probabilities": found} if found else {}

    def _with_fields(self, body: Event) -> Event:
        """Return only the requested fields. `a/b` picks b out of a and keeps that name."""
        if not self.asked.response_fields:
            return body
        found = ((path, value_at(body, path)) for path in self.asked.response_fields)
        return {path: value for path, value in found if value is not None}


def stop_type(last: Chunk) -> str:
    """Return why a reply ended: a stop string, an end-of-turn token, or a limit."""
    if last.finish_reason != "stop":
        return "limit"
    return "word" if last.stop else "eos"


def value_at(body: object, path: str) -> object:
    """Return the value at a path of names, or None."""
    for name in path.split("/"):
        body = body.get(name) if isinstance(body, Mapping) else None
    return body
