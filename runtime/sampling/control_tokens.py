"""Control tokens that a grammar may name. Knows names and ids; knows no notation of grammars, and no model.

llguidance does not treat a control token as text, so a literal that contains the name of one also allows it as a token.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property

NOTHING = r"/[^\s\S]/"  # matches no text
HEX = re.compile(r"\\(?:x([0-9a-fA-F]{2})|.)")


@dataclass(frozen=True)
class ControlTokens:
    """A vocabulary's control tokens by name, without `ends`, the ids that end a turn, as nothing can follow those.

    `find` returns the id of the token of any type with a given name.
    """

    ids: Mapping[str, int] = field(default_factory=dict)
    ends: frozenset[int] = frozenset()
    find: Callable[[str], int | None] = dict[str, int]().get

    @cached_property
    def _names(self) -> re.Pattern[str]:
        longest_first = sorted(self.ids, key=len, reverse=True)
        return re.compile(f"({'|'.join(map(re.escape, longest_first))})" if longest_first else "(?!)")

    def named(self, literal: str) -> set[int]:
        """Return the ids of the control tokens whose names occur in a quoted literal."""
        return {self.ids[name] for name in self._names.findall(unquoted(literal))}

    def parted(self, text: str) -> list[tuple[str, int | None]]:
        """Return the names of control tokens in a text with their ids, and the parts between them with None."""
        parts = ((part, self.ids[part] if i % 2 else None) for i, part in enumerate(self._names.split(text)))
        return [each for each in parts if each[0]] or [("", None)]

    def spelled_or_whole(self, literal: str) -> str:
        """Return a quoted literal as a group in which each name may also be its token, in Lark."""
        parts = self.parted(unquoted(literal))
        if all(token is None for _, token in parts):
            return literal
        each = (quoted(part) if token is None else f"({quoted(part)} | {these([token])})" for part, token in parts)
        return f"({' '.join(each)})"


def quoted(text: str) -> str:
    """Return a literal that both notations can read."""
    return json.dumps(text, ensure_ascii=False)


def unquoted(literal: str) -> str:
    """Return the text of a literal; "" if its notation is not valid JSON, as then it contains no name."""
    try:
        return str(json.loads(HEX.sub(as_json, literal)))
    except ValueError:
        return ""


def as_json(escape: re.Match[str]) -> str:
    """Return an escape of two hexadecimal digits in JSON's form; others as they are."""
    return f"\\u00{escape[1]}" if escape[1] else escape[0]


def these(ids: Collection[int]) -> str:
    """Return a reference to any of the tokens in Lark; there is at least one."""
    return f"<[{ranges(ids)}]>"


def all_but(ids: Collection[int]) -> str:
    """Return a reference to any other token in Lark."""
    return f"<[^{ranges(ids)}]>" if ids else "<[*]>"


def ranges(ids: Collection[int]) -> str:
    """Return ids as llguidance writes them, such as 3-5,9."""
    found: list[list[int]] = []
    for token in sorted(set(ids)):
        if found and found[-1][-1] == token - 1:
            found[-1][1:] = [token]
        else:
            found.append([token])
    return ",".join("-".join(map(str, ends)) for ends in found)
