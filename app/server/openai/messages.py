"""The messages of a conversation so far, and the calls in them. Must not know a model's form of calls."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import dropwhile
from operator import not_
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from app.server.fields import Few, Many, RequestModel, Text, TextPart, is_quick
from app.server.left_out import with_notes
from app.server.pictures import ChatContent, ImagePart
from app.server.wire import with_whole_characters
from runtime.engine import Message

ROLES = {"developer": "system", "function": "tool"}  # newer and older names
RESULTS = ("tool", "function")  # roles
LOST = "images in results replaced by notes, because the template changes what is in these"
LOST_NOTE = "[image left out: the chat template takes none in results]"


def as_json_text(value: object) -> object:
    """Return a value as JSON text, and null as ""."""
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


Arguments = Annotated[Text, BeforeValidator(as_json_text, json_schema_input_type=Any)]


class CalledFunction(RequestModel):
    """The function that was called, with its arguments as JSON text."""

    name: str
    arguments: Arguments = "{}"


class PastToolCall(RequestModel):
    """A tool call in an earlier message. That of a custom tool is read as one of a function with an `input`."""

    id: str | None = None
    function: CalledFunction

    @model_validator(mode="before")
    @classmethod
    def _as_function(cls, value: Any) -> Any:
        custom = value.get("custom") if isinstance(value, dict) else None
        if not isinstance(custom, dict):
            return value
        return value | {"function": {"name": custom.get("name"), "arguments": {"input": custom.get("input")}}}

    def arguments(self) -> dict[str, Any]:
        """Return the arguments as an object, as templates require. An empty text gives {}; any other text that is no
        object is wrapped in one.
        """
        text = self.function.arguments
        found = self._object()
        return found if found is not None else {} if text.strip() in ("", "null") else {"arguments": text}

    def has_arguments(self) -> bool:
        """Return whether the arguments are an object."""
        return self._object() is not None

    def _object(self) -> dict[str, Any] | None:
        text = self.function.arguments.encode("utf8", "replace")
        try:
            found = json.loads(with_whole_characters(text)) if is_quick(text) else None
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None

    def for_template(self) -> dict[str, Any]:
        """Return the call for a chat template that supports tools."""
        function = {"name": self.function.name, "arguments": self.arguments()}
        return ({"id": self.id} if self.id else {}) | {"type": "function", "function": function}


class ChatMessage(RequestModel):
    """A message of the conversation so far."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: ChatContent | None = None
    name: str | None = None
    tool_calls: Few[PastToolCall] | None = None
    tool_call_id: str | None = None
    reasoning_content: Text | None = None

    @model_validator(mode="before")
    @classmethod
    def _with_calls(cls, value: Any) -> Any:
        """Read the older field for a call."""
        call = value.get("function_call") if isinstance(value, dict) else None
        return value | {"tool_calls": [{"function": call}]} if call and not value.get("tool_calls") else value

    @property
    def text(self) -> str:
        """The parts of the content, one line for each as in llama-server."""
        return joined([part.text for part in self.content or ()])

    def message(self) -> Message:
        """Return the message for the engine."""
        more = {
            "name": self.name,
            "tool_call_id": self.tool_call_id,
            "tool_calls": [call.for_template() for call in self.tool_calls or ()],
            "reasoning_content": self.reasoning_content,
        }
        return Message(ROLES.get(self.role, self.role), self.text, {key: value for key, value in more.items() if value})


def text_part(text: str) -> TextPart:
    """Return a text as a part of a chat message."""
    return TextPart(type="text", text=text)


def chat_message(role: str, content: str | list[TextPart], **more: Any) -> ChatMessage:
    """Return a chat message with a text or parts."""
    return ChatMessage.model_validate({"role": role, "content": content, **more})


def joined(parts: Sequence[str]) -> str:
    """Return the parts joined by line breaks, without leading empty ones."""
    return "\n".join(dropwhile(not_, parts))


def without_lost(messages: Sequence[ChatMessage], prompt: str) -> list[ChatMessage]:
    """Return the messages with notes in place of images in tool results that a template has not put into the prompt as
    they are; [] if there are none.
    """
    results = (message for message in messages if message.role in RESULTS)
    parts = (part for message in results for part in message.content or () if isinstance(part, ImagePart))
    lost = {part.text for part in parts if part.text not in prompt}
    return [noted_result(message, lost) for message in messages] if lost else []


def noted_result(message: ChatMessage, lost: set[str]) -> ChatMessage:
    """Return a tool result with notes for these images; another message unchanged."""
    if message.role not in RESULTS or not message.content:
        return message
    kept = [text_part(LOST_NOTE) if part.text in lost else part for part in message.content]
    return message.model_copy(update={"content": kept})


Messages = Annotated[Many[ChatMessage], Field(min_length=1), BeforeValidator(with_notes)]
