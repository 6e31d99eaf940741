"""/messages: Anthropic's format for a chat.

Any model name is accepted, because these clients ask for Claude. The reply has the real name.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Annotated

from pydantic import Field

from app.server.anthropic.conversation import AnthropicConversation
from app.server.anthropic.errors import AnthropicErrorBody
from app.server.anthropic.response import MessageBody, MessageFormatter
from app.server.bounds import Few
from app.server.endpoint import generation_endpoint
from app.server.fields import Whole
from app.server.generation import GenerationRequest, PromptIds
from app.server.openai.chat import ChatRequest
from app.server.task import CompletionTask
from runtime.engine import Engine


class MessagesRequest(AnthropicConversation, GenerationRequest):
    """The body of a request to /messages."""

    max_tokens: Annotated[Whole, Field(ge=1)]
    stop_sequences: Few[str] | None = None

    @cached_property
    def as_chat(self) -> ChatRequest:
        """The request as a chat request."""
        shared = {name: getattr(self, name) for name in GenerationRequest.model_fields}
        stops = [*(self.stop_sequences or ()), *(self.stop or ())]
        return self.chat(max_tokens=self.max_tokens, **shared | {"stop": stops})

    def task(self, engine: Engine) -> CompletionTask:
        """Return the task for the engine. Raises SettingsError and ApiError."""
        return self.as_chat.task(engine)

    def formatter(self, engine: Engine, prompts: Sequence[PromptIds]) -> MessageFormatter:
        """Return the formatter for the reply."""
        return MessageFormatter(engine.pair.name, self.as_chat.formatter(engine, prompts), len(prompts[0]))


ENDPOINT = generation_endpoint("/messages", MessagesRequest, MessageBody, AnthropicErrorBody)
