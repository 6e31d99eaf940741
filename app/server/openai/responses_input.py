"""The input of /v1/responses: messages, reasoning, calls and their outputs, translated to chat messages.

Must not know tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Tag

from app.server.fields import ChatContent, RequestModel, TextPart, refuse_media, text_of
from app.server.openai.conversation import ChatMessage
from app.server.openai.tools import Arguments, CalledFunction, PastToolCall

# Items from OpenAI's own server or from other kinds of tools, which the model cannot read.
FOREIGN = Literal[
    "apply_patch_call", "apply_patch_call_output", "code_interpreter_call", "compaction", "computer_call",
    "computer_call_output", "custom_tool_call", "custom_tool_call_output", "file_search_call", "image_generation_call",
    "local_shell_call", "local_shell_call_output", "mcp_approval_request", "mcp_approval_response", "mcp_call",
    "mcp_list_tools", "shell_call", "shell_call_output", "tool_search_call", "tool_search_output", "web_search_call",
]  # fmt: skip


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
        elif last and len(turns) == 1 and last.role == "system" and self.role in ("system", "developer"):
            last.content = text_parts(f"{text_of(last.content)}\n\n{text_of(self.content)}")
        else:
            turns.append(ChatMessage(role=self.role, content=self.content))


class ReasoningPart(RequestModel):
    """A part of the model's reasoning."""

    type: Literal["reasoning_text", "summary_text"]
    text: str


class PastReasoning(RequestModel):
    """The model's reasoning before its text or calls."""

    type: Literal["reasoning"]
    id: str | None = None
    summary: list[ReasoningPart] | None = None
    content: list[ReasoningPart] | None = None

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
        turns[-1].tool_calls = [*(turns[-1].tool_calls or ()), call]


class CallOutputItem(RequestModel):
    """The result of a call."""

    type: Literal["function_call_output"]
    id: str | None = None
    call_id: str
    output: ChatContent

    def add_to(self, turns: list[ChatMessage]) -> None:
        """Add the output as a message of its own."""
        turns.append(ChatMessage(role="tool", tool_call_id=self.call_id, content=self.output))


class ItemReference(RequestModel):
    """An item of a response that is kept here; it must have been looked up."""

    type: Literal["item_reference"]
    id: str

    def add_to(self, turns: list[ChatMessage]) -> None:
        """Add nothing."""


class ForeignItem(RequestModel):
    """An item that is left out."""

    type: FOREIGN
    id: str | None = None

    def add_to(self, turns: list[ChatMessage]) -> None:
        """Add nothing."""


def kind_of(item: Any) -> str | None:
    """Return the tag of the model that reads this item. The space in it keeps it out of the field names in errors."""
    if not isinstance(item, dict | RequestModel):
        return None
    kind = (item.get("type") or "message") if isinstance(item, dict) else getattr(item, "type", None)
    known = ("message", "reasoning", "function_call", "function_call_output", "item_reference")
    return f"{kind} item" if kind in known else "foreign item"


AnyItem = Annotated[
    Annotated[InputMessage, Tag("message item")]
    | Annotated[PastReasoning, Tag("reasoning item")]
    | Annotated[CallItem, Tag("function_call item")]
    | Annotated[CallOutputItem, Tag("function_call_output item")]
    | Annotated[ItemReference, Tag("item_reference item")]
    | Annotated[ForeignItem, Tag("foreign item")],
    Discriminator(kind_of, "item_type", "Input should be an object"),
]
InputItem = Annotated[AnyItem, BeforeValidator(refuse_media)]


def text_parts(text: str) -> list[TextPart]:
    """Return a text as a message's content."""
    return [TextPart(type="text", text=text)]


def chat_messages(instructions: str | None, items: Iterable[InputItem]) -> list[ChatMessage]:
    """Return the chat that the items translate to. Reasoning without a message or call after it is left out."""
    turns = [ChatMessage(role="system", content=text_parts(instructions))] if instructions else []
    for item in items:
        item.add_to(turns)
    return [turn for turn in turns if turn.role != "assistant" or turn.tool_calls or turn.content is not None]
