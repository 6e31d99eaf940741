"""/api/generate of Ollama: a question, the gap between two texts, or a text to continue."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.types import ASGIApp

from app.server.bounds import Many, Text
from app.server.endpoint import Endpoint, generated, require_tokens
from app.server.errors import ApiError
from app.server.fields import Whole, read_body
from app.server.generation import PromptIds
from app.server.ollama.context import ContextFormatter, ContinuedChat
from app.server.ollama.errors import OllamaErrorBody
from app.server.ollama.reply import OllamaFormatter, OllamaReply
from app.server.ollama.request import OllamaRequest
from app.server.openai.chat import ChatRequest
from app.server.openai.completions import CompletionRequest
from app.server.openai.conversation import ChatMessage
from app.server.openai.reply_reader import ReplyReader
from app.server.served import ServedEngine
from app.server.wire import NDJSON, JSONBody
from runtime.engine import Engine


class GenerateRequest(OllamaRequest):
    """The body of a request to /api/generate; without a prompt, the model is only to be loaded."""

    prompt: Text | None = None
    suffix: Text | None = None
    system: Text | None = None
    template: Text | None = None
    raw: bool | None = None
    context: Many[Whole] | None = None

    @property
    def is_chat(self) -> bool:
        """Whether the chat template is applied."""
        return not self.raw and not self.suffix

    def asked(self) -> ChatRequest | CompletionRequest:
        """Return the request as an OpenAI request. Raises ApiError."""
        if self.template:
            message = "template cannot be changed here. Leave it out, or send the whole prompt with raw."
            raise ApiError(400, message, "template")
        prompt = self.prompt or ""
        if not self.is_chat:
            if self.context:
                message = "context excludes raw and suffix. Send the whole text as the prompt, or leave it out."
                raise ApiError(400, message, "context")
            return CompletionRequest(prompt=[prompt], suffix=self.suffix, **self.settings())
        turns = [("system", self.system), ("user", prompt)]
        messages = [ChatMessage.model_validate({"role": role, "content": text}) for role, text in turns if text]
        shared = self.settings() | self.thoughts()
        if self.context:
            return ContinuedChat(messages=messages, context=self.context, **shared)
        return ChatRequest(messages=messages, **shared)


async def generate(served: ServedEngine, request: Request) -> ASGIApp:
    """Answer with the model's completion."""
    engine = served.engine
    body = await read_body(request, GenerateRequest, engine.facts.n_ctx)
    name = body.model or engine.pair.name
    if not body.prompt and not body.suffix:
        return JSONBody(OllamaFormatter(name, ReplyReader(), is_chat=False).loaded())
    if body.context:
        require_tokens(engine)
    asked = await run_in_threadpool(body.asked)

    def formatter(engine: Engine, prompts: Sequence[PromptIds]) -> OllamaFormatter:
        if not isinstance(asked, ChatRequest):
            return OllamaFormatter(name, ReplyReader(), is_chat=False)
        if engine.facts.upstream:
            return OllamaFormatter(name, asked.reply_reader(engine), is_chat=False)
        return ContextFormatter(name, asked.reply_reader(engine), prompts[0], engine)

    return await generated(served, engine, asked, formatter)


ENDPOINT = Endpoint("/api/generate", generate, GenerateRequest, OllamaReply, streams=NDJSON, refusal=OllamaErrorBody)
