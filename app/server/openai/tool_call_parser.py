"""Finds tool calls in a streamed reply, as pieces of OpenAI's `tool_calls`. Must not know tokens."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from runtime.conversation.calls import (
    HERMES,
    ArgumentText,
    BareCalls,
    CallBegins,
    CallForm,
    CallParser,
    ContentPart,
    Function,
    HarmonyParser,
    Part,
)

Delta = dict[str, Any]


class ToolCallParser:
    """Reads a reply piece by piece. With `bare`, JSON of calls is read as calls."""

    def __init__(
        self,
        functions: Sequence[Function] = (),
        form: CallForm = HERMES,
        bare: BareCalls | None = None,
        harmony: HarmonyParser | None = None,
    ) -> None:
        self.n_calls = 0  # calls so far whose name is known
        self._parser, self._bare = harmony or CallParser(form, functions), bare

    def feed(self, text: str) -> Iterator[Delta]:
        """Yield the deltas that are certain after `text`: {"content": ...}, {"reasoning_content": ...} or
        {"tool_calls": [...]}.
        """
        yield from self._deltas(self._parser.feed(self._bare.feed(text) if self._bare else text))

    def finish(self, is_cut: bool) -> Iterator[Delta]:
        """Yield the text that was held back. If the reply was cut off, an incomplete marker is dropped."""
        calls, text = self._bare.finish(is_cut) if self._bare else ([], "")
        for name, arguments in calls:
            yield from self._deltas([CallBegins(name), ArgumentText(arguments)])
        if not calls:
            yield from self._deltas([*self._parser.feed(text), *self._parser.finish(is_cut)])

    def _deltas(self, parts: Iterable[Part]) -> Iterator[Delta]:
        for part in parts:
            if isinstance(part, CallBegins):
                self.n_calls += 1
                function = {"name": part.name, "arguments": ""}
                yield self._call(id=f"call_{secrets.token_hex(8)}", type="function", function=function)
            elif isinstance(part, ArgumentText):
                yield self._call(function={"arguments": part.text})
            else:
                yield {"content" if isinstance(part, ContentPart) else "reasoning_content": part.text}

    def _call(self, **fields: Any) -> Delta:
        return {"tool_calls": [{"index": self.n_calls - 1, **fields}]}


def merge_tool_calls(deltas: Iterable[Delta]) -> list[Delta]:
    """Return the tool calls, assembled from the pieces of a stream."""
    calls: list[Delta] = []
    for delta in deltas:
        for piece in delta.get("tool_calls", ()):
            if "id" in piece:
                calls.append({"id": piece["id"], "type": "function", "function": dict(piece["function"])})
            else:
                calls[-1]["function"]["arguments"] += piece["function"]["arguments"]
    return calls
