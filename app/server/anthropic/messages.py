"""/messages: Anthropic's format for a chat, translated to OpenAI's, and /messages/count_tokens.

Any model name is accepted, because these clients ask for Claude. The reply has the real name.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Discriminator, Field, Tag, WithJsonSchema

from app.server.anthropic.blocks import AnthropicMessage, TextContent, text_of
from app.server.anthropic.response import MessageBody, MessageFormatter
from app.server.endpoint import generation_endpoint, query_endpoint
from app.server.fields import Few, Many, Object, RequestModel, Text, Whole
from app.server.generation import GenerationRequest
from app.server.left_out import with_notes
from app.server.openai.chat import ChatRequest
from app.server.openai.common import JsonSchema, ResponseFormat
from app.server.openai.messages import ChatMessage, chat_message
from app.server.openai.tools import (
    FunctionDefinition,
    FunctionName,
    FunctionNameInput,
    HostedTool,
    ToolChoice,
    ToolDefinition,
    offered,
)
from app.server.task import CompletionTask, PromptIds
from app.server.wire import Event
from runtime.engine import Engine

# First line of Claude Code's system prompt. It is removed, because it changes with each request and defeats the cache.
BILLING = "x-anthropic-billing-header:"
USUAL_BUDGET = 10_000
CHOICES: dict[str, Any] = {"auto": "auto", "any": "required", "tool": "function", "none": "none"}


class ClientTool(RequestModel):
    """A tool that the client runs."""

    type: Literal["custom"] | None = None
    name: FunctionNameInput
    description: Text | None = None
    input_schema: Object

    def definition(self) -> ToolDefinition:
        """Return the tool in OpenAI's format."""
        function = FunctionDefinition(name=self.name, description=self.description, parameters=self.input_schema)
        return ToolDefinition(type="function", function=function)


class ServerTool(HostedTool):
    """A tool that Anthropic's server runs or defines. It is left out."""

    type: Annotated[str, WithJsonSchema({"type": "string", "not": {"const": "custom"}})]


def kind_of(tool: Any) -> str | None:
    """Return the tag of the model that reads this tool. The space in it keeps it out of the field names in errors."""
    if not isinstance(tool, dict):
        return None
    is_custom = tool.get("type") in (None, "custom") or "input_schema" in tool
    return "custom tool" if is_custom else "server tool"


ToolInput = Annotated[
    Annotated[ClientTool, Tag("custom tool")] | Annotated[ServerTool, Tag("server tool")],
    Discriminator(kind_of, "tool_type", "Input should be an object"),
]


class ToolUseChoice(RequestModel):
    """Which tool must be called: any or none (auto), at least one (any), or the named one."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None

    def choice(self) -> ToolChoice:
        """Return the choice in OpenAI's format."""
        return ToolChoice(type=CHOICES[self.type], function=FunctionName(name=self.name) if self.name else None)


class OutputFormat(RequestModel):
    """The required format of the text."""

    type: Literal["json_schema"]
    json_schema: Object = Field(alias="schema")


class OutputConfig(RequestModel):
    """Options for the text."""

    format: OutputFormat | None = None

    def response_format(self) -> ResponseFormat | None:
        """Return the format in OpenAI's terms."""
        schema = JsonSchema(schema=self.format.json_schema) if self.format else None
        return ResponseFormat(type="json_schema", json_schema=schema) if schema else None


class Thinking(RequestModel):
    """Whether the model reasons before it answers; `adaptive` leaves that to the model."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: Whole | None = Field(None, ge=-1)  # 0: no reasoning; -1: no limit

    @property
    def budget(self) -> int | None:
        """The most tokens of reasoning. As in llama-server, there is a default if a client only enables reasoning."""
        return USUAL_BUDGET if self.type == "enabled" and self.budget_tokens is None else self.budget_tokens


class AnthropicConversation(RequestModel):
    """The fields that the requests of both endpoints share."""

    messages: Annotated[Many[AnthropicMessage], Field(min_length=1), BeforeValidator(with_notes)]
    system: TextContent | None = None
    tools: Few[ToolInput] | None = None
    tool_choice: ToolUseChoice | None = None
    output_config: OutputConfig | None = None
    thinking: Thinking | None = None
    chat_template_kwargs: Object | None = None

    def chat(self, **more: Any) -> ChatRequest:
        """Return the conversation as a chat request, with `more` of its fields."""
        return ChatRequest(
            messages=[*self._system(), *(chat for message in self.messages for chat in message.chat_messages())],
            tools=[tool.definition() for tool in offered(self.tools, ClientTool)],
            tool_choice=self.tool_choice.choice() if self.tool_choice else None,
            parallel_tool_calls=not (self.tool_choice and self.tool_choice.disable_parallel_tool_use),
            response_format=self.output_config.response_format() if self.output_config else None,
            enable_thinking=self.thinking.type != "disabled" if self.thinking else None,
            reasoning_budget=self.thinking.budget if self.thinking else None,
            chat_template_kwargs=self.chat_template_kwargs,
            **more,
        )

    def _system(self) -> list[ChatMessage]:
        """Return the system prompt as the chat's first message, if there is one."""
        blocks = [block for block in self.system or () if not block.text.startswith(BILLING)]
        text = text_of(blocks, "\n\n")
        return [chat_message("system", text)] if text else []


class MessagesRequest(AnthropicConversation, GenerationRequest):
    """The body of a request to /messages."""

    prompt_field = "messages"
    max_tokens: Annotated[Whole, Field(ge=1)]
    stop_sequences: Few[str] | None = None

    @cached_property
    def as_chat(self) -> ChatRequest:
        """The request as a chat request."""
        stops = [*(self.stop_sequences or ()), *(self.stop or ())]
        return self.chat(max_tokens=self.max_tokens, **self.shared() | {"stop": stops})

    def task(self, engine: Engine, i: int = 0) -> CompletionTask:
        """Return the task for the engine; see GenerationRequest."""
        return self.as_chat.task(engine)

    def formatter(self, engine: Engine, prompts: Sequence[PromptIds]) -> MessageFormatter:
        """Return the formatter for the reply."""
        return MessageFormatter(self.reply_name(engine), self.as_chat.reply_reader(engine), len(prompts[0]))


class CountTokensRequest(AnthropicConversation):
    """The body of a request to /messages/count_tokens."""

    model: str | None = None


class TokenCount(BaseModel):
    """The body that answers /messages/count_tokens."""

    input_tokens: int


def count_tokens(request: CountTokensRequest, engine: Engine) -> Event:
    """Return the body of TokenCount. Raises ApiError and TemplateError."""
    return {"input_tokens": request.chat().task(engine).n_prompt}


ENDPOINT = generation_endpoint("/messages", MessagesRequest, MessageBody)
COUNT = query_endpoint("/messages/count_tokens", CountTokensRequest, TokenCount, count_tokens)
