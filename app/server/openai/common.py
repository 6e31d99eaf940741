"""Parts that several of OpenAI's interfaces share: request fields, and helpers for response bodies."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from abc import abstractmethod
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from app.reply_text import ShownTokens
from app.server.errors import ApiError
from app.server.fields import MAX_OBJECT, Content, Object, RequestModel, TextPart, Whole, text_of
from app.server.generation import MAX_CHOICES, GenerationRequest
from app.server.task_response import Formatter
from app.server.usage import Tally
from app.server.wire import Event
from runtime.engine import Chunk, Engine, Grammar

FinishReason = Literal["stop", "length", "tool_calls"]


class StreamOptions(RequestModel):
    """Options of a stream."""

    include_usage: bool | None = None


class JsonSchema(RequestModel):
    """A JSON schema and its name."""

    json_schema: Object = Field(alias="schema")


class ResponseFormat(RequestModel):
    """The required format of the reply."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None
    # Of a json_object, as llama.cpp's clients send it
    object_schema: Object | None = Field(default=None, validation_alias="schema")

    def grammar(self) -> Grammar | None:
        """Return the grammar for the engine, or None for any text. Raises ApiError if the schema is missing."""
        if self.type == "text":
            return None
        if self.object_schema is not None:
            return Grammar("json_schema", json.dumps(self.object_schema))
        if self.type == "json_object":
            return Grammar("json_object")
        if self.json_schema is None:
            message = "response_format.json_schema is missing. Give {name, schema}."
            raise ApiError(400, message, "response_format.json_schema")
        return Grammar("json_schema", json.dumps(self.json_schema.json_schema))


def short_text(content: list[TextPart]) -> list[TextPart]:
    """Raises PydanticCustomError for more text than a reply can repeat."""
    if sum(len(part.text) for part in content) > MAX_OBJECT:
        raise PydanticCustomError("too_long", "Input should have at most {most} characters", {"most": MAX_OBJECT})
    return content


class Prediction(RequestModel):
    """Text that the reply will mostly repeat."""

    type: Literal["content"]
    content: Annotated[Content, AfterValidator(short_text)]


class OpenAIRequest(GenerationRequest):
    """The fields that requests for chats and text completions share."""

    stream_options: StreamOptions | None = None
    n: Annotated[Whole, Field(ge=1, le=MAX_CHOICES)] | None = None
    max_tokens: Annotated[Whole, Field(ge=-1)] | None = None  # -1: no limit
    n_predict: Annotated[Whole, Field(ge=-1)] | None = None  # llama.cpp's name for it
    response_format: ResponseFormat | None = None
    prediction: Prediction | None = None

    post_sampling_probs: bool | None = None  # log probabilities after all sampling settings

    @property
    def n_choices(self) -> int:
        """The number of replies to each prompt."""
        return self.n or 1

    @property
    def token_limit(self) -> int | None:
        """The most tokens to generate. 0: prefill only; None: no limit."""
        limit = self.n_predict if self.max_tokens is None else self.max_tokens
        return None if limit == -1 else limit

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with the usage."""
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def predicted_text(self) -> str:
        """The text that the reply will mostly repeat. "" if there is none."""
        return text_of(self.prediction.content) if self.prediction else ""

    def format_grammar(self) -> Grammar | None:
        """Return the grammar that the reply must follow. Raises ApiError."""
        found = self.response_format.grammar() if self.response_format else None
        if found and (self.grammar or self.json_schema is not None):
            message = "response_format excludes grammar and json_schema. Leave one of them out."
            raise ApiError(400, message, "response_format")
        return found or self.constraint()


def new_id(prefix: str) -> str:
    """Return an identifier for a reply or a part of one."""
    return prefix + secrets.token_hex(12)


def now() -> int:
    """Return the seconds since 1970, for `created`."""
    return int(time.time())


def fingerprint(engine: Engine) -> str:
    """Return the hash of the program's and the library's version, the model and its context. It begins like llama.cpp's
    build names.
    """
    parts = (*versions(), engine.pair.name, engine.facts.content or engine.pair.upstream)
    numbers = engine.facts.n_bytes, engine.facts.n_ctx, engine.facts.is_reproducible
    return "b" + hashlib.sha256(repr((parts, numbers)).encode()).hexdigest()[:10]


@cache
def versions() -> tuple[str, str]:
    """Return the versions of the program and of llama-cpp-python. Reading them takes milliseconds."""
    return version("slipstream"), version("llama-cpp-python")


class ChoicesFormatter(Formatter):
    """Writes the replies of chats and text completions as `choices`, one after the other."""

    done = b"data: [DONE]\n\n"

    def __init__(self, engine: Engine, asked: OpenAIRequest, head: Event, n_prompts: int, shows_tokens: bool) -> None:
        """`head` is the beginning of bodies and events; `shows_tokens`: with log probabilities."""
        self.engine, self.asked, self.shows_tokens = engine, asked, shows_tokens
        self._tally, self._shown = Tally(n_prompts, asked.n_choices), ShownTokens(engine)
        model = {"model": asked.reply_name(engine), "system_fingerprint": fingerprint(engine)}
        self.head: Event = head | {"created": now()} | model
        self.event_head = self.head  # of the events of a stream
        self._end: Event = {"usage": None} if asked.include_usage else {}  # of these events

    @abstractmethod
    def _finish(self, last: Chunk) -> Event:
        """Return the event with the finish reason."""

    def _usage(self) -> Event:
        return self._tally.usage()

    def _advance(self, last: Chunk) -> None:
        """Advance to the next reply."""
        self._tally.add(last)
        self._shown = ShownTokens(self.engine)

    def last_events(self, last: Chunk) -> Iterator[Event]:
        """Yield the finish reason, then the next reply's first events, or the numbers in the last event."""
        finish = self._finish(last)
        self._advance(last)
        if not self._tally.is_complete:
            yield finish
            yield from self.first_events()
        elif self.asked.include_usage:
            yield finish
            yield self.event_head | {"choices": []} | self._usage() | self._tally.timings()
        else:
            yield finish | self._tally.timings()

    def _event_of(self, choice: Event, **more: object) -> Event:
        """Return the event of a choice."""
        return {**self.event_head, "choices": [choice], **more, **self._end}
