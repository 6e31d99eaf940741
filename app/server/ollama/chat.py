"""/api/chat: Ollama's format for a chat. Any model name is accepted."""

from __future__ import annotations

from typing import Literal

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.types import ASGIApp

from app.server.bounds import Few, Many, Text
from app.server.endpoint import Endpoint, generated
from app.server.fields import RequestModel, read_body
from app.server.llamacpp.completion import NoImages
from app.server.ollama.errors import OllamaErrorBody
from app.server.ollama.reply import OllamaFormatter, OllamaReply
from app.server.ollama.request import OllamaRequest
from app.server.openai.chat import ChatRequest
from app.server.openai.conversation import ChatMessage
from app.server.openai.past_calls import PastToolCall
from app.server.openai.reply_reader import ReplyReader
from app.server.openai.tools import ToolInput
from app.server.served import ServedEngine
from app.server.wire import NDJSON, JSONBody


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
