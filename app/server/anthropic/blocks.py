"""The content blocks of a conversation, and their translation to chat messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from app.server.fields import Many, OtherPart, RequestModel, Text, as_parts, refuse_media
from app.server.openai.messages import Arguments, CalledFunction, ChatMessage, PastToolCall, joined

KINDS = ("text", "thinking", "redacted_thinking", "tool_use", "tool_result")


def check_kind(value: object) -> object:
    """Raises PydanticCustomError for a block of an unsupported type."""
    refuse_media(value)
    kind = value.get("type") if isinstance(value, dict) else None
    if kind not in KINDS:
        raise PydanticCustomError(
            "block_type", "Input should be an object of type {kinds}", {"kinds": " or ".join(KINDS)}
        )
    return value


class TextBlock(RequestModel):
    """Text."""

    type: Literal["text"]
    text: Text


class ThinkingBlock(RequestModel):
    """The model's reasoning. The signature is ignored."""

    type: Literal["thinking"]
    thinking: Text


class RedactedThinkingBlock(RequestModel):
    """The encrypted reasoning of another model."""

    type: Literal["redacted_thinking"]


class ToolUseBlock(RequestModel):
    """A tool call in an earlier message."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: Arguments

    def call(self) -> PastToolCall:
        """Return the call in OpenAI's format."""
        return PastToolCall(id=self.id, function=CalledFunction(name=self.name, arguments=self.input))


TextContent = Annotated[
    Many[Annotated[TextBlock, BeforeValidator(check_kind)]],
    BeforeValidator(as_parts, json_schema_input_type=Text | list[TextBlock]),
]


ResultContent = Annotated[
    Many[Annotated[TextBlock, BeforeValidator(check_kind)]],
    BeforeValidator(as_parts, json_schema_input_type=Text | list[TextBlock | OtherPart]),
]


def text_of(blocks: list[TextBlock] | None, between: str = "") -> str:
    """Return the text of several blocks, joined with `between`."""
    return between.join(block.text for block in blocks or ())


class ToolResultBlock(RequestModel):
    """The result of a tool call."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: ResultContent | None = None
    is_error: bool | None = None

    def message(self) -> ChatMessage:
        """Return the result as a chat message."""
        text = "Error: " * bool(self.is_error) + text_of(self.content)
        return chat_message("tool", text, tool_call_id=self.tool_use_id)


AnyBlock = Annotated[
    TextBlock | ThinkingBlock | RedactedThinkingBlock | ToolUseBlock | ToolResultBlock, Field(discriminator="type")
]
Content = Annotated[
    Many[Annotated[AnyBlock, BeforeValidator(check_kind)]],
    BeforeValidator(as_parts, json_schema_input_type=Text | list[AnyBlock | OtherPart]),
]


def chat_message(role: Any, text: str, **more: Any) -> ChatMessage:
    """Return a chat message with one text."""
    return ChatMessage.model_validate({"role": role, "content": text, **more})


class AnthropicMessage(RequestModel):
    """A message of the conversation so far."""

    role: Literal["user", "assistant", "system"]
    content: Content

    def chat_messages(self) -> Iterator[ChatMessage]:
        """Yield the chat messages that this one translates to. A tool result becomes a message of its own."""
        blocks: list[Any] = []
        for block in self.content:
            if isinstance(block, ToolResultBlock):
                yield from self._merged_message(blocks)
                yield block.message()
                blocks = []
            else:
                blocks.append(block)
        if blocks or not self.content:
            yield from self._merged_message(blocks or [TextBlock(type="text", text="")])

    def _merged_message(self, blocks: list[Any]) -> Iterator[ChatMessage]:
        """Yield text, reasoning and calls as one message, if there are any."""
        if blocks:
            text = joined([block.text for block in blocks if isinstance(block, TextBlock)])
            thought = "\n".join(block.thinking for block in blocks if isinstance(block, ThinkingBlock))
            calls = [block.call() for block in blocks if isinstance(block, ToolUseBlock)]
            yield chat_message(self.role, text, tool_calls=calls or None, reasoning_content=thought or None)
