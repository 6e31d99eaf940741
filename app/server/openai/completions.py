"""Text completions as OpenAI's clients ask for them and read them; with `suffix`, the place between two texts is filled
in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from app.server.endpoint import generation_endpoint
from app.server.errors import ApiError
from app.server.logprobs import TextLogprobs, text_logprobs
from app.server.openai.common import DONE, FinishReason, OpenAIRequest, new_id, now
from app.server.task import CompletionTask
from app.server.task_response import Formatter
from app.server.usage import Timings, Usage, timings, usage
from app.server.wire import Event
from runtime.engine import Chunk, Engine, Ids, Infill, Prompt

SHORT = 256  # tokens up to which a completion goes before chats that wait
PromptInput = str | list[int] | Annotated[list[str | list[int]], Field(min_length=1, max_length=1)]


def single_prompt(value: object) -> object:
    """A list of one prompt as that prompt. Raises PydanticCustomError for what is no prompt, and for several."""
    one = value[0] if isinstance(value, list) and len(value) == 1 and isinstance(value[0], (str, list)) else value
    if isinstance(one, str) or (isinstance(one, list) and all(isinstance(token, int) for token in one)):
        return one
    raise PydanticCustomError("prompt_type", "Input should be one text or one list of token ids")


RawPrompt = Annotated[str | list[int], BeforeValidator(single_prompt, json_schema_input_type=PromptInput)]


def prompt_ids(prompt: str | list[int], engine: Engine) -> Ids:
    """The ids of a text in which control tokens may be named, or those that were sent."""
    return Ids(tuple(engine.tokenize(prompt, bos=True) if isinstance(prompt, str) else prompt))


class CompletionRequest(OpenAIRequest):
    """The body of a request to /v1/completions."""

    prompt: RawPrompt
    suffix: str | None = None
    echo: Literal[False] | None = None
    best_of: Literal[1] | None = None
    logprobs: int | None = None

    def task(self, engine: Engine) -> CompletionTask:
        """Raises SettingsError and ApiError."""
        if self.suffix and not isinstance(self.prompt, str):
            message = "prompt must be text where there is a suffix. Send the text before the place."
            raise ApiError(400, message, "prompt")
        return CompletionTask(
            prompt=self._prompt,
            sampling=self.sampling(engine.pair),
            max_tokens=self.token_limit,
            stops=tuple(self.stop or ()),
            grammar=self.format_grammar(),
            n_logprobs=self.logprobs,
            prediction=self.predicted_text,
            is_short=self.token_limit is not None and self.token_limit <= SHORT,
        )

    def _prompt(self, engine: Engine) -> Prompt:
        if self.suffix and isinstance(self.prompt, str):
            return Infill(self.prompt, self.suffix)
        return prompt_ids(self.prompt, engine)

    def formatter(self, engine: Engine, n_prompt: int) -> CompletionFormatter:
        """How the reply is written."""
        return CompletionFormatter(engine, self.logprobs is not None, self.include_usage)


class TextChoice(BaseModel):
    """The only text."""

    index: Literal[0]
    text: str
    finish_reason: FinishReason
    logprobs: TextLogprobs | None


class TextCompletion(BaseModel):
    """The body that answers a request to /v1/completions."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[TextChoice]
    usage: Usage
    timings: Timings


class CompletionFormatter(Formatter):
    """Writes text completions."""

    done = DONE

    def __init__(self, engine: Engine, logprobs: bool, include_usage: bool) -> None:
        self.engine, self.logprobs, self.include_usage = engine, logprobs, include_usage
        self.head: Event = {
            "id": new_id("cmpl-"),
            "object": "text_completion",
            "created": now(),
            "model": engine.pair.name,
        }
        self._n_chars = 0  # of the text so far

    def first_events(self) -> Iterable[Event]:
        """Nothing comes before the text."""
        return ()

    def chunk_events(self, chunk: Chunk) -> Iterator[Event]:
        """Text, and the log probabilities of its tokens."""
        if chunk.text or (self.logprobs and chunk.logprobs):
            yield self._event(chunk.text, [chunk])
            self._n_chars += len(chunk.text)

    def last_events(self, last: Chunk) -> Iterator[Event]:
        """The finish reason, and the numbers with the last event."""
        stats = last.stats
        numbers: Event = {"timings": timings(stats)} if stats else {}
        finish = self._event("", finish_reason=last.finish_reason)
        if self.include_usage and stats:
            yield finish
            yield self.head | {"choices": [], "usage": usage(stats)} | numbers
        else:
            yield finish | numbers

    def _event(self, text: str, chunks: Sequence[Chunk] = (), finish_reason: str | None = None) -> Event:
        choice = {"index": 0, "text": text, "finish_reason": finish_reason, "logprobs": self._logprobs(chunks)}
        event = self.head | {"choices": [choice]}
        return event | {"usage": None} if self.include_usage else event

    def _logprobs(self, chunks: Sequence[Chunk]) -> Event | None:
        return text_logprobs(self.engine, chunks, self._n_chars) if self.logprobs and chunks else None

    def body(self, chunks: Sequence[Chunk]) -> Event:
        """The body of TextCompletion."""
        last, text = chunks[-1], "".join(chunk.text for chunk in chunks)
        choice = {"index": 0, "text": text, "finish_reason": last.finish_reason, "logprobs": self._logprobs(chunks)}
        numbers: Event = {"usage": usage(last.stats), "timings": timings(last.stats)} if last.stats else {}
        return self.head | {"choices": [choice]} | numbers


ENDPOINT = generation_endpoint("/completions", CompletionRequest, TextCompletion)
