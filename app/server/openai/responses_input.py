"""The input of /v1/responses: messages, reasoning, calls and their outputs, translated to chat messages.

Must not know tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Tag
from pydantic_core import PydanticCustomError

from app.server.fields import Few, Many, RequestModel, Text, refuse_media
from app.server.left_out import log_left_out
from app.server.openai.messages import Arguments, CalledFunction, ChatMessage, PastToolCall, chat_message, text_part
from app.server.openai.responses_options import ToolInput
from app.server.pictures import ChatContent

# Items that change what the request asks for, which must not be left out.
REQUESTS = {
    "configuration_update": "send text and reasoning with the request",
    "compaction_trigger": "shorten the conversation before you send it",
}

SYSTEM = ("system", "developer")  # roles


class InputMessage(RequestModel):
    """A message of the conversation so far."""

    type: Literal["message"] = "message"
    id: str | None = None
    role: Literal["system", "developer", "user", "assistant"]
    content: ChatContent

    def add_to(self, turns: list[ChatMessage]) -> None:
        """Add the message. An assistant message joins the reasoning before it, and system messages at the start are
        merged.
        """
        last = turns[-1] if turns else None
        if last and self.role == "assistant" == last.role and last.content is None and not last.tool_calls:
            last.content = self.content
        elif last and last.content and len(turns) == 1 and last.role == "system" and self.role in SYSTEM:
            last.content += [text_part(""), *self.content]  # an empty line between them
        else:
            turns.append(ChatMessage(role=self.role, content=self.content))


class ReasoningPart(RequestModel):
    """A part of the model's reasoning."""

    type: Literal["reasoning_text", "summary_text"]
    text: Text


class PastReasoning(RequestModel):
    """The model's reasoning before its text or calls."""

    type: Literal["reasoning"]
    id: str | None = None
    summary: Many[ReasoningPart] | None = None
    content: Many[ReasoningPart] | None = None

    def add_to(self, turns: list[ChatMessage]) -> None:
        """Start an assistant message with the reasoning."""
        if text := "".join(part.text for part in self.content or self.summary or ()):
            turns.append(ChatMessage(role="assistant", reasoning_content=text))


class CallItem(RequestModel):
    """A call that the model made."""

    type: Literal["function_call"]
    id: str | None = None
    call_id: str
    name: str
    arguments: Arguments

    def add_to(self, turns: list[ChatMessage]) -> None:
        """Add the call to the current assistant message, or start one."""
        if not turns or turns[-1].role != "assistant":
            turns.append(ChatMessage(role="assistant"))
        call = PastToolCall(id=self.call_id, function=CalledFunction(name=self.name, arguments=self.arguments))
        turns[-1].tool_calls = turns[-1].tool_calls or []
        turns[-1].tool_calls.append(call)


class CallOutputItem(RequestModel):
    """The result of a call."""

    type: Literal["function_call_output"]
    id: str | None = None
    call_id: str | None = None
    output: ChatContent | None = None

    def add_to(self, turns: list[ChatMessage]) -> None:
        """Add the output as a message of its own."""
        turns.append(ChatMessage(role="tool", tool_call_id=self.call_id, content=self.output or []))


class ItemReference(RequestModel):
    """An item of a response that is kept here; it must have been looked up."""

    type: Literal["item_reference"] = "item_reference"
    id: str

    def add_to(self, turns: list[ChatMessage]) -> None:
        """Add nothing."""


class LaterTools(RequestModel):
    """Tools that are offered from this item on, which here is always."""

    type: Literal["additional_tools", "tool_search_output"]
    id: str | None = None
    tools: Few[ToolInput]

    def add_to(self, turns: list[ChatMessage]) -> None:
        """Add nothing."""


LATER = ("additional_tools", "tool_search_output")
KNOWN = ("message", "reasoning", "function_call", "function_call_output", "item_reference", *LATER)


def check_foreign(value: Any) -> Any:
    """Raises PydanticCustomError for an item that has a message, or that changes what the request asks for."""
    kind = str(value.get("type")) if isinstance(value, dict) else ""
    if kind in REQUESTS:
        raise PydanticCustomError(
            "item_type", "Input should not be a {kind}: {remedy}", {"kind": kind, "remedy": REQUESTS[kind]}
        )
    if isinstance(value, dict) and {"role", "content"} & value.keys():
        raise PydanticCustomError("item_type", "Input should have another type: {kinds}", {"kinds": ", ".join(KNOWN)})
    return value


class ForeignItem(RequestModel):
    """An item of OpenAI's own server or of another kind of tool, which the model cannot read. It is left out."""

    type: str
    id: str | None = None

    def add_to(self, turns: list[ChatMessage]) -> None:
        """Add nothing."""
        log_left_out("items", self.type)


def kind_of(item: Any) -> str | None:
    """Return the tag of the model that reads this item. The space in it keeps it out of the field names in errors."""
    if isinstance(item, RequestModel):
        kind = getattr(item, "type", None)
    elif isinstance(item, dict):
        is_reference = "id" in item and not {"role", "content"} & item.keys()
        kind = item.get("type") or ("item_reference" if is_reference else "message")
    else:
        return None
    if kind in LATER:
        return "tools item"
    return f"{kind} item" if isinstance(kind, str) and kind in KNOWN else "foreign item"


AnyItem = Annotated[
    Annotated[InputMessage, Tag("message item")]
    | Annotated[PastReasoning, Tag("reasoning item")]
    | Annotated[CallItem, Tag("function_call item")]
    | Annotated[CallOutputItem, Tag("function_call_output item")]
    | Annotated[ItemReference, Tag("item_reference item")]
    | Annotated[LaterTools, Tag("tools item")]
    | Annotated[ForeignItem, BeforeValidator(check_foreign), Tag("foreign item")],
    Discriminator(kind_of, "item_type", "Input should be an object"),
]
InputItem = Annotated[AnyItem, BeforeValidator(refuse_media)]


def chat_messages(instructions: str | None, items: Iterable[InputItem]) -> list[ChatMessage]:
    """Return the chat that the items translate to. Reasoning without a message or call after it is left out."""
    turns = [chat_message("system", instructions)] if instructions else []
    for item in items:
        item.add_to(turns)
    return [turn for turn in turns if turn.role != "assistant" or turn.tool_calls or turn.content is not None]


def later_tools(items: Iterable[InputItem]) -> list[ToolInput]:
    """Return the tools that items add to those of the request."""
    return [tool for item in items if isinstance(item, LaterTools) for tool in item.tools]
