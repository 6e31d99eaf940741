"""/api/chat: Ollama's format for a chat, and the fields that its requests share. Any model name is accepted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.types import ASGIApp

from app.server.endpoint import Endpoint, generated, model_endpoint, read_for
from app.server.fields import Few, Many, Object, RequestModel, Text, TextPart, Whole
from app.server.generation import RareFields, Stops
from app.server.ollama.reply import OllamaFormatter, OllamaReply
from app.server.openai.chat import ChatRequest
from app.server.openai.common import JsonSchema, ResponseFormat
from app.server.openai.completions import CompletionRequest
from app.server.openai.messages import ChatMessage, PastToolCall, text_part
from app.server.openai.reply_reader import ReplyReader
from app.server.openai.tools import ToolInput
from app.server.pictures import Images
from app.server.served import ServedEngine
from app.server.task import PromptIds
from app.server.wire import NDJSON, Event, JSONBody
from runtime.engine import Engine


class OllamaOptions(RareFields):
    """How tokens are sampled. Others, such as `num_ctx` and `num_gpu`, are set by the server."""

    temperature: float | None = None
    top_k: Whole | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: Whole | None = None
    num_predict: Whole | None = None  # below 0: no limit
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repeat_penalty: float | None = None
    repeat_last_n: Whole | None = None
    stop: Stops | None = None


def none_for_empty(value: object) -> object:
    """Return None for "", which some clients send for no format."""
    return None if value == "" else value


class OllamaRequest(RequestModel, ABC):
    """The fields that the requests for text share."""

    is_chat: ClassVar[bool]  # whether the reply is a message
    model: str = ""
    stream: bool | None = None  # absent: yes
    format: Annotated[Literal["json"] | Object | None, BeforeValidator(none_for_empty)] = None
    options: OllamaOptions | None = None
    think: bool | str | None = None  # or an effort: low, medium, high
    images: Images | None = None

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether there is nothing to reply to, so that the model is only to be loaded."""

    @abstractmethod
    def asked(self, engine: Engine) -> ChatRequest | CompletionRequest:
        """Return the request in OpenAI's terms. Raises ApiError."""

    def formatter(
        self, model: str, asked: ChatRequest | CompletionRequest, engine: Engine, prompts: Sequence[PromptIds]
    ) -> OllamaFormatter:
        """Return the formatter for the reply."""
        reader = asked.reply_reader(engine) if isinstance(asked, ChatRequest) else ReplyReader()
        return OllamaFormatter(model, reader, self.is_chat)

    def settings(self) -> dict[str, Any]:
        """Return the fields that requests for text share in OpenAI's interface."""
        options = self.options or OllamaOptions.model_validate({})
        shared = options.model_dump(exclude_none=True, exclude={"num_predict"})
        limit = options.num_predict
        return shared | {
            "max_tokens": None if limit is None or limit < 0 else limit,
            "stream": self.stream is not False,
            "response_format": self._response_format(),
        }

    def thoughts(self) -> dict[str, Any]:
        """Return the fields of a chat about thinking."""
        effort = self.think if isinstance(self.think, str) else None
        return {"enable_thinking": True if effort else self.think, "reasoning_effort": effort}

    def _response_format(self) -> ResponseFormat | None:
        if isinstance(self.format, dict):
            return ResponseFormat(type="json_schema", json_schema=JsonSchema(schema=self.format))
        return ResponseFormat(type="json_object") if self.format else None


def text_endpoint(path: str, kind: type[OllamaRequest]) -> Endpoint:
    """Return an endpoint that answers with the model's reply. Any model name is accepted, and repeated."""

    async def handle(served: ServedEngine, request: Request) -> ASGIApp:
        engine = served.engine
        body = await read_for(engine, request, kind)
        name = body.model or engine.pair.name
        if body.is_empty:
            return JSONBody(OllamaFormatter(name, ReplyReader(), body.is_chat).loaded())
        asked = await run_in_threadpool(body.asked, engine)
        asked.model = body.model
        return await generated(served, asked, partial(body.formatter, name, asked))

    def farewell(name: str) -> Event:
        return OllamaFormatter(name, ReplyReader(), kind.is_chat).loaded("unload")

    return model_endpoint(path, handle, kind, OllamaReply, NDJSON, farewell=farewell)


def with_text(images: Sequence[TextPart], text: str | None) -> list[TextPart]:
    """Return the parts of a message: its images, then its text."""
    return [*images, text_part(text or "")]


class OllamaMessage(RequestModel):
    """A message of the conversation so far."""

    role: Literal["system", "user", "assistant", "tool"]
    content: Text | None = None
    thinking: Text | None = None
    images: Images | None = None
    tool_calls: Few[PastToolCall] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None

    def message(self) -> ChatMessage:
        """Return the message in OpenAI's format."""
        same = self.model_dump(include={"role", "content", "tool_call_id"})
        if self.images:
            same["content"] = with_text(self.images, self.content)
        more = {"reasoning_content": self.thinking, "tool_calls": self.tool_calls, "name": self.tool_name}
        return ChatMessage.model_validate(same | more)


class OllamaChatRequest(OllamaRequest):
    """The body of a request to /api/chat; without messages, the model is only to be loaded."""

    is_chat = True
    messages: Many[OllamaMessage] | None = None
    tools: Few[ToolInput] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there are no messages."""
        return not self.messages

    def asked(self, engine: Engine) -> ChatRequest:
        """Return the request as an OpenAI chat request."""
        messages = [each.message() for each in self.messages or ()]
        return ChatRequest(messages=messages, tools=self.tools, **self.settings(), **self.thoughts())


ENDPOINT = text_endpoint("/api/chat", OllamaChatRequest)
