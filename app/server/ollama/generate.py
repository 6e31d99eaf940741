"""/api/generate of Ollama: a question, the gap between two texts, or a text to continue."""

from __future__ import annotations

from starlette.requests import Request
from starlette.types import ASGIApp

from app.server.endpoint import Endpoint, generated
from app.server.errors import ApiError
from app.server.fields import read_body
from app.server.ollama.errors import OllamaErrorBody
from app.server.ollama.reply import OllamaFormatter, OllamaReply
from app.server.ollama.request import OllamaRequest
from app.server.openai.chat import ChatRequest
from app.server.openai.completions import CompletionRequest
from app.server.openai.conversation import ChatMessage
from app.server.openai.reply_reader import ReplyReader
from app.server.served import ServedEngine
from app.server.wire import NDJSON, JSONBody


class GenerateRequest(OllamaRequest):
    """The body of a request to /api/generate; without a prompt, the model is only to be loaded."""

    prompt: str | None = None
    suffix: str | None = None
    system: str | None = None
    template: str | None = None
    raw: bool | None = None

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
            return CompletionRequest(prompt=[prompt], suffix=self.suffix, **self.settings())
        turns = [("system", self.system), ("user", prompt)]
        messages = [ChatMessage.model_validate({"role": role, "content": text}) for role, text in turns if text]
        return ChatRequest(messages=messages, **self.settings(), **self.thoughts())


async def generate(served: ServedEngine, request: Request) -> ASGIApp:
    """Answer with the model's completion."""
    engine = served.engine
    body = await read_body(request, GenerateRequest, engine.facts.n_ctx)
    name = body.model or engine.pair.name
    if not body.prompt and not body.suffix:
        return JSONBody(OllamaFormatter(name, ReplyReader(), is_chat=False).loaded())
    asked = body.asked()

    def formatter(*_: object) -> OllamaFormatter:
        reader = asked.reply_reader(engine) if isinstance(asked, ChatRequest) else ReplyReader()
        return OllamaFormatter(name, reader, is_chat=False)

    return await generated(served, engine, asked, formatter)


ENDPOINT = Endpoint("/api/generate", generate, GenerateRequest, OllamaReply, streams=NDJSON, refusal=OllamaErrorBody)
