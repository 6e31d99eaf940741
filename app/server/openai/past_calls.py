"""Calls in the messages so far, with their arguments as an object. Must not know a model's form of calls."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import BeforeValidator, model_validator

from app.server.bounds import Text, is_quick
from app.server.fields import RequestModel
from app.server.wire import with_whole_characters


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
