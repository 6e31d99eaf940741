"""/api/chat: Ollama's format for a chat, and the fields that its requests share. Any model name is accepted."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.types import ASGIApp

from app.server.bounds import Few, Many, Object, Text
from app.server.endpoint import Endpoint, generated
from app.server.fields import RequestModel, Whole, read_body
from app.server.generation import Stops
from app.server.llamacpp.completion import NoImages
from app.server.ollama.reply import OllamaFormatter, OllamaReply
from app.server.openai.chat import ChatRequest
from app.server.openai.common import JsonSchema, ResponseFormat
from app.server.openai.messages import ChatMessage, PastToolCall
from app.server.openai.reply_reader import ReplyReader
from app.server.openai.tools import ToolInput
from app.server.refusal import OllamaErrorBody
from app.server.served import ServedEngine
from app.server.wire import NDJSON, JSONBody

SHARED = (
    "temperature", "top_k", "top_p", "min_p", "seed", "presence_penalty", "frequency_penalty", "repeat_penalty",
    "repeat_last_n", "stop",
)  # fmt: skip


class OllamaOptions(RequestModel):
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


class OllamaRequest(RequestModel):
    """The fields that the requests for text share."""

    model: str = ""
    stream: bool | None = None  # absent: yes
    format: Annotated[Literal["json"] | Object | None, BeforeValidator(none_for_empty)] = None
    options: OllamaOptions | None = None
    think: bool | str | None = None  # or an effort: low, medium, high
    images: NoImages = None

    def settings(self) -> dict[str, Any]:
        """Return the fields that requests for text share in OpenAI's interface."""
        options = self.options or OllamaOptions()
        shared = {name: value for name in SHARED if (value := getattr(options, name)) is not None}
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


class OllamaMessage(RequestModel):
    """A message of the conversation so far."""

    role: Literal["system", "user", "assistant", "tool"]
    content: Text | None = None
    thinking: Text | None = None
    images: NoImages = None
    tool_calls: Few[PastToolCall] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None

    def message(self) -> ChatMessage:
        """Return the message in OpenAI's format."""
        same = self.model_dump(include={"role", "content", "tool_call_id"})
        more = {"reasoning_content": self.thinking, "tool_calls": self.tool_calls, "name": self.tool_name}
        return ChatMessage.model_validate(same | more)


class OllamaChatRequest(OllamaRequest):
    """The body of a request to /api/chat; without messages, the model is only to be loaded."""

    messages: Many[OllamaMessage] | None = None
    tools: Few[ToolInput] | None = None

    def as_chat(self) -> ChatRequest:
        """Return the request as an OpenAI chat request."""
        messages = [each.message() for each in self.messages or ()]
        return ChatRequest(messages=messages, tools=self.tools, **self.settings(), **self.thoughts())


async def chat(served: ServedEngine, request: Request) -> ASGIApp:
    """Answer with the model's reply."""
    engine = served.engine
    body = await read_body(request, OllamaChatRequest, engine.facts.n_ctx)
    name = body.model or engine.pair.name
    if not body.messages:
        return JSONBody(OllamaFormatter(name, ReplyReader(), is_chat=True).loaded())
    asked = await run_in_threadpool(body.as_chat)
    return await generated(
        served, engine, asked, lambda engine, _: OllamaFormatter(name, asked.reply_reader(engine), is_chat=True)
    )


ENDPOINT = Endpoint("/api/chat", chat, OllamaChatRequest, OllamaReply, streams=NDJSON, refusal=OllamaErrorBody)
