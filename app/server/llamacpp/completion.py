"""/completion as llama.cpp's clients ask for it and read it, and what /infill shares with it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from app.server.endpoint import generation_endpoint
from app.server.generation import GenerationRequest
from app.server.logprobs import TokenLogprob, token_logprobs
from app.server.openai.completions import SHORT, RawPrompt, prompt_ids
from app.server.task import CompletionTask
from app.server.task_response import Formatter
from app.server.usage import Timings, timings
from app.server.wire import Event
from runtime.engine import Chunk, Engine, Prompt, Sampling
from runtime.models.registry import Pair

SHORT_SECONDS = 5  # of generating: who sets a lower limit is typing
NO_PENALTIES = {"repetition_penalty": None, "presence_penalty": None, "frequency_penalty": None}


def refuse_images(value: object) -> object:
    """Raises PydanticCustomError for anything but an empty list, which older clients send."""
    if value:
        raise PydanticCustomError("unsupported", "Input should be empty: image input is not supported, so leave it out")
    return value


NoImages = Annotated[list[Any] | None, BeforeValidator(refuse_images)]


class LlamaCppRequest(GenerationRequest):
    """What /completion and /infill share."""

    n_predict: Annotated[int, Field(ge=-1)] | None = None  # -1: no limit; 0: only read the prompt
    max_tokens: Annotated[int, Field(ge=-1)] | None = None
    n_probs: int | None = None
    t_max_predict_ms: int | None = None  # 0 or less: no limit
    response_fields: list[str] | None = None
    image_data: NoImages = None

    def sampling(self, pair: Pair) -> Sampling:
        """In llama.cpp a negative top_k is off, no last tokens are no penalty, and -1 of them are all."""
        update: dict[str, Any] = {"top_k": None if self.top_k is None else max(0, self.top_k)}
        if self.penalty_last_n is not None and self.penalty_last_n <= 0:
            update |= {"penalty_last_n": 0} | (NO_PENALTIES if self.penalty_last_n == 0 else {})
        return GenerationRequest.sampling(self.model_copy(update=update), pair)

    def task_for(self, prompt: Callable[[Engine], Prompt], engine: Engine, is_short: bool) -> CompletionTask:
        """The task for a prompt. Raises SettingsError and ApiError."""
        n_predict = self.max_tokens if self.n_predict is None else self.n_predict
        seconds = self.t_max_predict_ms / 1e3 if self.t_max_predict_ms and self.t_max_predict_ms > 0 else None
        is_brief = (n_predict is not None and 0 <= n_predict <= SHORT) or (seconds or math.inf) <= SHORT_SECONDS
        return CompletionTask(
            prompt=prompt,
            sampling=self.sampling(engine.pair),
            max_tokens=None if n_predict == -1 else n_predict,
            stops=tuple(self.stop or ()),
            grammar=self.constraint(),
            n_logprobs=self.n_probs or None,
            max_decode_seconds=seconds,
            is_short=is_short or is_brief,
        )

    def formatter(self, engine: Engine, n_prompt: int) -> LlamaCppFormatter:
        """How the reply is written."""
        return LlamaCppFormatter(engine, self.response_fields)


class RawCompletionRequest(LlamaCppRequest):
    """The body of a request to /completion."""

    prompt: RawPrompt

    def task(self, engine: Engine) -> CompletionTask:
        """Raises SettingsError and ApiError."""
        return self.task_for(lambda engine: prompt_ids(self.prompt, engine), engine, is_short=False)


class LlamaCppCompletion(BaseModel):
    """The body that answers /completion and /infill; with `response_fields` it has only those."""

    content: str = ""
    tokens: list[int] = []
    stop: bool = True
    stop_type: Literal["limit", "eos", "word"] = "limit"
    model: str = ""
    truncated: bool = False
    tokens_predicted: int = 0
    tokens_evaluated: int = 0
    tokens_cached: int = 0
    timings: Timings | dict[str, Any] = {}
    completion_probabilities: list[TokenLogprob] = []


class LlamaCppFormatter(Formatter):
    """Writes the replies of /completion and /infill."""

    done = b""

    def __init__(self, engine: Engine, fields: Sequence[str] | None) -> None:
        self.engine, self.fields = engine, fields
        self._last_token: int | None = None

    def first_events(self) -> Iterable[Event]:
        """Nothing comes before the text."""
        return ()

    def chunk_events(self, chunk: Chunk) -> Iterator[Event]:
        """Text and its tokens."""
        if chunk.tokens:
            self._last_token = chunk.tokens[-1]
        if chunk.tokens or chunk.text:
            event: Event = {"index": 0, "content": chunk.text, "tokens": list(chunk.tokens), "stop": False}
            yield event | self._probabilities([chunk])

    def last_events(self, last: Chunk) -> Iterable[Event]:
        """The numbers; the text has come before."""
        yield self._with_fields(self._final(last, "", []))

    def body(self, chunks: Sequence[Chunk]) -> Event:
        """The body of LlamaCppCompletion."""
        tokens = [token for chunk in chunks for token in chunk.tokens]
        self._last_token = tokens[-1] if tokens else None
        text = "".join(chunk.text for chunk in chunks)
        return self._with_fields(self._final(chunks[-1], text, tokens) | self._probabilities(chunks))

    def _final(self, last: Chunk, text: str, tokens: list[int]) -> Event:
        """`content` comes first: llama.vim looks for it before it reads the JSON."""
        body: Event = {"content": text, "index": 0, "tokens": tokens, "stop": True, "stop_type": self._stop_type(last)}
        body |= {"model": self.engine.pair.name, "id_slot": 0, "truncated": False}
        if (stats := last.stats) is not None:
            body |= {
                "tokens_predicted": stats.predicted_n,
                "tokens_evaluated": stats.prompt_n,
                "tokens_cached": stats.cached_n,
                "timings": timings(stats),
            }
        return body

    def _stop_type(self, last: Chunk) -> str:
        if last.finish_reason != "stop":
            return "limit"
        return "eos" if self._last_token is not None and self.engine.is_end(self._last_token) else "word"

    def _probabilities(self, chunks: Sequence[Chunk]) -> Event:
        found = token_logprobs(self.engine, chunks)
        return {"completion_probabilities": found} if found else {}

    def _with_fields(self, body: Event) -> Event:
        """Only the fields that were asked for; `a/b` picks b out of a and keeps that name."""
        if self.fields is None:
            return body
        found = ((path, value_at(body, path)) for path in self.fields)
        return {path: value for path, value in found if value is not None}


def value_at(body: object, path: str) -> object:
    """The value at a path of names; None where there is none."""
    for name in path.split("/"):
        body = body.get(name) if isinstance(body, Mapping) else None
    return body


ENDPOINT = generation_endpoint("/completion", RawCompletionRequest, LlamaCppCompletion)
