"""Text as ids where the model's own are another server's: an id is a byte of UTF-8, or a token that the server named.

A conversation is written as a mark that nobody else knows, JSON, and what the reply is to go on with; so it goes
through whoever handles prompts as text or as ids, and is messages again when it is sent. Knows text.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runtime.conversation.chat_template import Message, TemplateForm
from runtime.conversation.prompt import Ids, Infill, Prompt, Talk
from runtime.conversation.quoting import Rendered
from runtime.core.errors import SettingsError, TemplateError

N_BYTES = 256
PIECE, END = 256, 257  # some of the reply's text; the end of a turn
FIRST = 258  # of the tokens that were named

# What those read who look into a template for what it supports; it is never rendered
TEMPLATE = "{# Another server renders it: system messages, tools with <tool_call>, reasoning with <think>. #}"


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages for another server's template; `begun` is what the reply has already."""

    messages: tuple[dict[str, Any], ...]
    tools: tuple[dict[str, Any], ...] = ()
    variables: Mapping[str, Any] = field(default_factory=dict)
    begun: str = ""


class Words:
    """The ids of one engine, and what they stand for."""

    def __init__(self) -> None:
        self._mark = f"\x1d{secrets.token_hex(16)}\x1d"
        self._named: dict[bytes, int] = {}
        self._bytes: list[bytes] = []

    def render(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = (), form: TemplateForm | None = None
    ) -> Rendered:
        """A conversation as text. Raises TemplateError for what is no plain data."""
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
        """The ids of a prompt. Raises SettingsError, TemplateError."""
        if isinstance(prompt, Ids):
            if any(not 0 <= token < N_BYTES for token in prompt.tokens):
                raise SettingsError(
                    "prompt holds token ids, whose meaning only the server knows that has the model. Send text."
                )
            return list(prompt.tokens)
        if isinstance(prompt, Infill):
            raise SettingsError("A place in a file cannot be filled in by another server. Send the text before it.")
        return list(self._written(prompt).encode("utf8", "replace"))

    def _written(self, prompt: str | Sequence[Message] | Talk | Rendered) -> str:
        if isinstance(prompt, str):
            return prompt
        if isinstance(prompt, Talk):
            return self.render(prompt.messages).text + prompt.begun
        return prompt.text if isinstance(prompt, Rendered) else self.render(prompt).text

    def decode(self, prompt: Prompt) -> Conversation | str:
        """What is to be sent: a conversation, or text to go on with. Raises as `encode` does."""
        text = bytes(self.encode(prompt)).decode("utf8", "replace")
        if not text.startswith(self._mark):
            return text
        found, end = json.JSONDecoder().raw_decode(text, len(self._mark))
        return Conversation(tuple(found["messages"]), tuple(found["tools"]), found["variables"], text[end:])

    def name(self, text: str) -> int:
        """The id of a token that the server named."""
        word = text.encode("utf8", "surrogatepass")
        if word not in self._named:
            self._named[word] = FIRST + len(self._bytes)
            self._bytes.append(word)
        return self._named[word]

    def bytes_of(self, token: int) -> bytes:
        """What an id adds to the text, as far as that is known; b"" for one that only stands for something."""
        if 0 <= token < N_BYTES:
            return bytes([token])
        return self._bytes[token - FIRST] if FIRST <= token < FIRST + len(self._bytes) else b""


def as_sent(message: Message) -> dict[str, Any]:
    """A message as OpenAI's interface has it: arguments of calls are text there, and values for a template."""
    more = dict(message.more)
    if calls := more.get("tool_calls"):
        more["tool_calls"] = [call | {"function": with_text_arguments(call["function"])} for call in calls]
    return {"role": message.role, "content": message.content, **more}


def with_text_arguments(function: Mapping[str, Any]) -> dict[str, Any]:
    """A called function with its arguments as JSON text."""
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {**function, "arguments": text}
