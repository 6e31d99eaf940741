"""Tool calls found in a reply as it comes: text goes on as text, calls become pieces of OpenAI's `tool_calls`.

Must not know tokens.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Iterator
from typing import Any

from app.server.openai.tools import BEGIN, END
from runtime.engine.text import overlap

Delta = dict[str, Any]
# What stands before the arguments. It matches only when these begin, however the text is cut.
HEAD = re.compile(r'\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"arguments"\s*:\s*(?=\S)')
CLOSING = "} \n"  # at the end of what has come: may end the call and not its arguments


class ToolCallParser:
    """Reads a reply piece by piece."""

    def __init__(self) -> None:
        self.n_calls = 0  # so far, of which the name is known
        self._held = ""  # not yet known to be text or a mark
        self._is_inside = self._has_head = False

    def feed(self, text: str) -> Iterator[Delta]:
        """What became certain with `text`: {"content": ...} or {"tool_calls": [...]}."""
        self._held += text
        while True:
            inside = self._is_inside
            before, found, after = self._held.partition(END if inside else BEGIN)
            if not found:
                yield from self._inside(before) if inside else self._outside(before, overlap(before, BEGIN))
                return
            yield from self._close(before) if inside else self._outside(before, 0)
            self._held, self._is_inside, self._has_head = after, not inside, False

    def finish(self, is_cut: bool) -> Iterator[Delta]:
        """What was held back when the reply ended; where it was cut, the beginning of a mark is no text."""
        if self._is_inside:
            yield from self._close(self._held[: len(self._held) - overlap(self._held, END)])
        elif not is_cut:
            yield from self._outside(self._held, 0)

    def _outside(self, text: str, n_held: int) -> Iterator[Delta]:
        """Text, but for the line breaks between calls."""
        at = len(text) - n_held
        certain, self._held = text[:at], text[at:]
        if certain.strip() or (certain and not self.n_calls):
            yield {"content": certain}

    def _inside(self, text: str) -> Iterator[Delta]:
        """The name once it is whole, then the arguments as they come."""
        if not self._has_head:
            head = HEAD.match(text)
            if head is None:
                return
            self._has_head, text = True, text[head.end() :]
            self.n_calls += 1
            function = {"name": json.loads(head[1]), "arguments": ""}
            yield self._delta(id=f"call_{secrets.token_hex(8)}", type="function", function=function)
        certain = text[: len(text) - overlap(text, END)]
        at = len(certain.rstrip(CLOSING))
        self._held = text[at:]
        yield from self._arguments(text[:at])

    def _close(self, text: str) -> Iterator[Delta]:
        """The rest of the arguments: what stands before the brace that ends the call."""
        self._held = ""
        yield from self._inside(text)
        if self._has_head:
            yield from self._arguments(self._held.rstrip().removesuffix("}").rstrip())
        self._held = ""

    def _arguments(self, text: str) -> Iterator[Delta]:
        if text:
            yield self._delta(function={"arguments": text})

    def _delta(self, **fields: Any) -> Delta:
        return {"tool_calls": [{"index": self.n_calls - 1, **fields}]}


def merge_tool_calls(deltas: Iterable[Delta]) -> list[Delta]:
    """The tool calls that the pieces of a stream add up to."""
    calls: list[Delta] = []
    for delta in deltas:
        for piece in delta.get("tool_calls", ()):
            if "id" in piece:
                calls.append({"id": piece["id"], "type": "function", "function": dict(piece["function"])})
            else:
                calls[-1]["function"]["arguments"] += piece["function"]["arguments"]
    return calls
