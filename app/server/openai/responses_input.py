"""The input of /v1/responses: messages, reasoning, calls and their outputs, and the chat that they amount to.

Must not know tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Tag

from app.server.fields import ChatContent, RequestModel, TextPart, refuse_media, text_of
from app.server.openai.conversation import ChatMessage
from app.server.openai.tools import Arguments, CalledFunction, PastToolCall

# What OpenAI's own server or other kinds of tools have left in a conversation: nothing of it can be shown to the model.
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
        """The model's message goes on from its reasoning; system messages at the start are one."""
        last = turns[-1] if turns else None
        if last and self.role == "assistant" == last.role and last.content is None and not last.tool_calls:
            last.content = self.content
        elif last and len(turns) == 1 and last.role == "system" and self.role in ("system", "developer"):
            last.content = text_parts(f"{text_of(last.content)}\n\n{text_of(self.content)}")
        else:
            turns.append(ChatMessage(role=self.role, content=self.content))


class ReasoningPart(RequestModel):
    """A part of what the model thought."""

    type: Literal["reasoning_text", "summary_text"]
    text: str


class PastReasoning(RequestModel):
    """What the model thought before it wrote or called."""

    type: Literal["reasoning"]
    id: str | None = None
    summary: list[ReasoningPart] | None = None
    content: list[ReasoningPart] | None = None

    def add_to(self, turns: list[ChatMessage]) -> None:
        """Begins the model's turn."""
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
        """Belongs to the model's turn, of which there may be something already."""
        if not turns or turns[-1].role != "assistant":
            turns.append(ChatMessage(role="assistant"))
        call = PastToolCall(id=self.call_id, function=CalledFunction(name=self.name, arguments=self.arguments))
        turns[-1].tool_calls = [*(turns[-1].tool_calls or ()), call]


class CallOutputItem(RequestModel):
    """What a call brought."""

    type: Literal["function_call_output"]
    id: str | None = None
    call_id: str
    output: ChatContent

    def add_to(self, turns: list[ChatMessage]) -> None:
        """A turn of its own."""
        turns.append(ChatMessage(role="tool", tool_call_id=self.call_id, content=self.output))


class ItemReference(RequestModel):
    """An item of a response that is kept here; it must have been looked up."""

    type: Literal["item_reference"]
    id: str

    def add_to(self, turns: list[ChatMessage]) -> None:
        """Nothing."""


class ForeignItem(RequestModel):
    """An item that is left out."""

    type: FOREIGN
    id: str | None = None

    def add_to(self, turns: list[ChatMessage]) -> None:
        """Nothing."""


def kind_of(item: Any) -> str | None:
    """Which of the models an item is meant to be. The space keeps it out of the names of fields in errors."""
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
    """A text as a message's content."""
    return [TextPart(type="text", text=text)]


def chat_messages(instructions: str | None, items: Iterable[InputItem]) -> list[ChatMessage]:
    """The chat that items amount to; reasoning that led to nothing is left out."""
    turns = [ChatMessage(role="system", content=text_parts(instructions))] if instructions else []
    for item in items:
        item.add_to(turns)
    return [turn for turn in turns if turn.role != "assistant" or turn.tool_calls or turn.content is not None]
