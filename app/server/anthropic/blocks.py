"""The content blocks of a conversation, and their translation to chat messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo
from pydantic_core import PydanticCustomError

from app.server.fields import Many, OtherPart, RequestModel, Text, TextPart, as_parts, refuse_media, sees_images
from app.server.openai.messages import Arguments, CalledFunction, ChatMessage, PastToolCall, chat_message, text_part
from app.server.pictures import ImagePart, encoded_in, image_part

KINDS = ("text", "thinking", "redacted_thinking", "tool_use", "tool_result")


def check_kind(value: object, info: ValidationInfo) -> object:
    """Raises PydanticCustomError for a block of a type that is not supported, or not by the model."""
    kind = value.get("type") if isinstance(value, dict) else None
    if kind == "image" and sees_images(info):
        return value
    refuse_media(value)
    if kind not in KINDS:
        raise PydanticCustomError(
            "block_type", "Input should be an object of type {kinds}", {"kinds": " or ".join(KINDS)}
        )
    return value


class TextBlock(RequestModel):
    """Text."""

    type: Literal["text"]
    text: Text


class ImageSource(RequestModel):
    """The file of an image."""

    type: Literal["base64"]
    media_type: str | None = None
    data: Text


def read_source(source: object) -> ImagePart:
    """Return the image. Raises PydanticCustomError."""
    return image_part(encoded_in({"source": source}))


class ImageBlock(RequestModel):
    """An image."""

    type: Literal["image"]
    source: Annotated[ImagePart, BeforeValidator(read_source, json_schema_input_type=ImageSource)]


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


ResultBlock = Annotated[TextBlock | ImageBlock, Field(discriminator="type")]
ResultContent = Annotated[
    Many[Annotated[ResultBlock, BeforeValidator(check_kind)]],
    BeforeValidator(as_parts, json_schema_input_type=Text | list[ResultBlock | OtherPart]),
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
        error = "Error: " * bool(self.is_error)
        seen = any(isinstance(block, ImageBlock) for block in self.content or ())
        texts = [block for block in self.content or () if isinstance(block, TextBlock)]
        parts = (
            [*[text_part(error)] * bool(error), *map(chat_part, self.content or ())] if seen else error + text_of(texts)
        )
        return chat_message("tool", parts, tool_call_id=self.tool_use_id)


AnyBlock = Annotated[
    TextBlock | ImageBlock | ThinkingBlock | RedactedThinkingBlock | ToolUseBlock | ToolResultBlock,
    Field(discriminator="type"),
]
Content = Annotated[
    Many[Annotated[AnyBlock, BeforeValidator(check_kind)]],
    BeforeValidator(as_parts, json_schema_input_type=Text | list[AnyBlock | OtherPart]),
]


def chat_part(block: TextBlock | ImageBlock) -> TextPart:
    """Return a text or an image as a part of a chat message."""
    return block.source if isinstance(block, ImageBlock) else text_part(block.text)


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
            content = [chat_part(block) for block in blocks if isinstance(block, TextBlock | ImageBlock)]
            thought = "\n".join(block.thinking for block in blocks if isinstance(block, ThinkingBlock))
            calls = [block.call() for block in blocks if isinstance(block, ToolUseBlock)]
            yield chat_message(self.role, content, tool_calls=calls or None, reasoning_content=thought or None)
