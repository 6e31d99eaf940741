"""Text as ids where another server has the model's ids: an id is a byte of UTF-8, or a token that the server named.

A conversation is encoded as a secret mark, JSON, and the beginning of the reply. So it passes through code that handles
prompts as text or as ids, and is decoded into messages when it is sent. Knows text.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runtime.conversation.chat_template import Message, TemplateForm
from runtime.conversation.infill import Infill
from runtime.conversation.pictured import Pictured
from runtime.conversation.prompt import Beginning, ChatPrompt, Ids, Prompt
from runtime.conversation.quoting import Rendered
from runtime.core.errors import SettingsError, TemplateError

N_BYTES = 256
PIECE, END = 256, 257  # a piece of the reply's text; the end of a turn
FIRST = 258  # id of the first token that the server named

# Read by code that searches a template for the features that it supports; it is never rendered
TEMPLATE = "{# Another server renders it: system messages, tools with <tool_call>, reasoning with <think>. #}"


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages for another server's template; `begun` is the beginning of the reply."""

    messages: tuple[dict[str, Any], ...]
    tools: tuple[dict[str, Any], ...] = ()
    variables: Mapping[str, Any] = field(default_factory=dict)
    begun: str = ""


class Words:
    """The ids of one engine and their meaning."""

    def __init__(self) -> None:
        self._mark = f"\x1d{secrets.token_hex(16)}\x1d"
        self._named: dict[bytes, int] = {}
        self._bytes: list[bytes] = []

    def render(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = (), form: TemplateForm | None = None
    ) -> Rendered:
        """Return a conversation as text. Raises TemplateError unless it is plain data."""
        written = {
            "messages": [as_sent(message) for message in messages],
            "tools": list(tools),
            "variables": dict(form.variables) if form else {},
        }
        try:
            return Rendered(self._mark + json.dumps(written, ensure_ascii=False))
        except (TypeError, ValueError) as error:
            raise TemplateError(
                f"The conversation cannot be sent to another server ({error}). Send plain JSON."
            ) from error

    def encode(self, prompt: Prompt) -> list[int]:
        """Return the ids of a prompt. Raises SettingsError, TemplateError."""
        if isinstance(prompt, Ids):
            if any(not 0 <= token < N_BYTES for token in prompt.tokens):
                raise SettingsError(
                    "prompt has token ids, whose meaning only the server with the model knows. Send text."
                )
            return list(prompt.tokens)
        if isinstance(prompt, Infill):
            raise SettingsError("Another server cannot fill in the middle of a file. Send the text before the cursor.")
        if isinstance(prompt, Beginning):
            raise SettingsError("Another server decides what it reads ahead. Send the whole prompt.")
        if isinstance(prompt, Pictured):
            raise SettingsError("Images are not sent to another server. Leave the image out.")
        return list(self._written(prompt).encode("utf8", "replace"))

    def _written(self, prompt: str | Sequence[Message] | ChatPrompt | Rendered) -> str:
        if isinstance(prompt, str):
            return prompt
        if isinstance(prompt, ChatPrompt):
            return self.render(prompt.messages).text + prompt.begun
        return prompt.text if isinstance(prompt, Rendered) else self.render(prompt).text

    def decode(self, prompt: Prompt) -> Conversation | str:
        """Return the prompt to send: a conversation, or text to continue. Raises as `encode` does."""
        text = bytes(self.encode(prompt)).decode("utf8", "replace")
        if not text.startswith(self._mark):
            return text
        found, end = json.JSONDecoder().raw_decode(text, len(self._mark))
        return Conversation(tuple(found["messages"]), tuple(found["tools"]), found["variables"], text[end:])

    def name(self, text: str) -> int:
        """Return the id of a token that the server named."""
        word = text.encode("utf8", "surrogatepass")
        if word not in self._named:
            self._named[word] = FIRST + len(self._bytes)
            self._bytes.append(word)
        return self._named[word]

    def bytes_of(self, token: int) -> bytes:
        """Return the bytes that an id adds to the text, as far as they are known; b"" for a placeholder."""
        if 0 <= token < N_BYTES:
            return bytes([token])
        return self._bytes[token - FIRST] if FIRST <= token < FIRST + len(self._bytes) else b""


def as_sent(message: Message) -> dict[str, Any]:
    """Return a message for OpenAI's interface, in which arguments of calls are text; for a template they are values."""
    more = dict(message.more)
    if calls := more.get("tool_calls"):
        more["tool_calls"] = [call | {"function": with_text_arguments(call["function"])} for call in calls]
    return {"role": message.role, "content": message.content, **more}


def with_text_arguments(function: Mapping[str, Any]) -> dict[str, Any]:
    """Return a called function with its arguments as JSON text."""
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {**function, "arguments": text}
