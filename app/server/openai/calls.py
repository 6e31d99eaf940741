"""Tool calls found in a reply as it comes: text goes on as text, calls become pieces of OpenAI's `tool_calls`.

Knows no tokens.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Iterator
from typing import Any

from app.server.openai.tools import BEGIN, END

Delta = dict[str, Any]
# Whole when the arguments begin, however it is cut
HEAD = re.compile(r'\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"arguments"\s*:\s*(?=\S)')
CLOSING = "} \n"  # at the end of what is known: may end the call and not its arguments


class Calls:
    """Reads a reply piece by piece."""

    def __init__(self) -> None:
        self.n = 0  # calls so far
        self._held = ""  # not yet known to be text or a mark
        self._is_inside = self._has_head = False

    def feed(self, text: str) -> Iterator[Delta]:
        """What became certain with `text`: {"content": ...} or {"tool_calls": [...]}."""
        self._held += text
        while True:
            mark = END if self._is_inside else BEGIN
            before, found, after = self._held.partition(mark)
            if not found:
                yield from (
                    self._inside(self._held)
                    if self._is_inside
                    else self._outside(self._held, overlap(self._held, BEGIN))
                )
                return
            yield from self._close(before) if self._is_inside else self._outside(before, 0)
            self._held, self._is_inside, self._has_head = after, not self._is_inside, False
            self.n += self._is_inside

    def finish(self) -> Iterator[Delta]:
        """What was held back when the reply ended, in the middle of a call perhaps."""
        if self._is_inside:
            yield from self._close(self._held)
        else:
            yield from self._outside(self._held, 0)

    def _outside(self, text: str, n_held: int) -> Iterator[Delta]:
        """Text, but for the line breaks between calls."""
        at = len(text) - n_held
        self._held = text[at:]
        if text[:at].strip() or (text[:at] and not self.n):
            yield {"content": text[:at]}

    def _inside(self, text: str) -> Iterator[Delta]:
        """The name once it is whole, then the arguments as they come."""
        if not self._has_head:
            head = HEAD.match(text)
            if head is None:
                return
            self._has_head, text = True, text[head.end() :]
            name = json.loads(head[1])
            call = {
                "id": f"call_{secrets.token_hex(8)}",
                "type": "function",
                "function": {"name": name, "arguments": ""},
            }
            yield {"tool_calls": [{"index": self.n - 1, **call}]}
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
            yield {"tool_calls": [{"index": self.n - 1, "function": {"arguments": text}}]}


def overlap(text: str, mark: str) -> int:
    """The length of the longest end of `text` that begins `mark`."""
    return next((n for n in range(min(len(text), len(mark) - 1), 0, -1) if text.endswith(mark[:n])), 0)


def merged(deltas: Iterable[Delta]) -> list[Delta]:
    """The calls that pieces add up to."""
    calls: list[Delta] = []
    for delta in deltas:
        for piece in delta.get("tool_calls", ()):
            if "id" in piece:
                calls.append({"id": piece["id"], "type": "function", "function": dict(piece["function"])})
            else:
                calls[-1]["function"]["arguments"] += piece["function"]["arguments"]
    return calls
