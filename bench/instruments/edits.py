"""Twelve edits of real files of Python's library, as a model would write them out: the file before and after.

Plain data, made by rules from whatever version is installed; knows no model and no drafter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

MOST_LINES = 120  # of a file


class Edit(NamedTuple):
    """What a person asks for, and the file before and after."""

    instruction: str
    before: str
    after: str


def source(module: str, first: int = 0) -> str:
    """Return lines of that module's file from the `first` on."""
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    lines = Path(spec.origin).read_text(encoding="utf8").splitlines(keepends=True)
    return "".join(lines[first : first + MOST_LINES])


def renamed(*names: tuple[str, str]) -> Callable[[str], str]:
    """Return an edit that gives names others, where they stand as words."""

    def edit(text: str) -> str:
        for old, new in names:
            text = re.sub(rf"\b{old}\b", new, text)
        return text

    return edit


def each_line(change: Callable[[str], str]) -> Callable[[str], str]:
    """Return an edit of each line by itself."""
    return lambda text: "".join(map(change, text.splitlines(keepends=True)))


def hinted(line: str) -> str:
    """Gives the parameters of a function types, and the function one."""
    if not (found := re.match(r"(\s*def \w+\()(.*)(\):\s*)$", line)):
        return line
    parameters = [
        part if part in ("self", "cls", "*", "/", "") or part.startswith("*") else re.sub(r"^(\w+)=?", hint, part)
        for part in found[2].split(", ")
    ]
    return f"{found[1]}{', '.join(parameters)}) -> None:\n"


def hint(found: re.Match[str]) -> str:
    """Return a name with a type."""
    return f"{found[1]}: object = " if found[0].endswith("=") else f"{found[1]}: object"


def documented(line: str) -> str:
    """Puts a docstring under a function's first line."""
    found = re.match(r"(\s*)def (\w+)\(.*\):\s*$", line)
    return f'{line}{found[1]}    """Do what {found[2]} says."""\n' if found else line


def narrower(line: str) -> str:
    """Halves the indentation."""
    text = line.lstrip(" ")
    return " " * ((len(line) - len(text)) // 2) + text


def without_function(text: str) -> str:
    """Leaves the second function out."""
    blocks = re.split(r"(?m)^(?=\s*def )", text)
    return "".join(blocks[:2] + blocks[3:])


def reordered(text: str) -> str:
    """Puts the third function before the second."""
    blocks = re.split(r"(?m)^(?=\s*def )", text)
    return "".join([*blocks[:2], blocks[3], blocks[2], *blocks[4:]]) if len(blocks) > 3 else text


def translated(line: str) -> str:
    """Says something else in a comment."""
    return re.sub(r"# .*", lambda found: "# " + " ".join(word[::-1] for word in found[0][2:].split()), line)


def logged(line: str) -> str:
    """Raises through a function."""
    return re.sub(r"raise (\w+)\(", r"fail(\1, ", line)


EDITS: Mapping[str, tuple[str, str, Callable[[str], str], int]] = {
    "rename a variable": ("textwrap", "Rename `text` to `content`", renamed(("text", "content")), 130),
    "rename two": ("bisect", "Rename `lo` to `low` and `hi` to `high`", renamed(("lo", "low"), ("hi", "high")), 0),
    "rename a method's word": ("queue", "Rename `item` to `element`", renamed(("item", "element")), 60),
    "type hints": ("heapq", "Add type hints", each_line(hinted), 130),
    "docstrings": ("fractions", "Add docstrings", each_line(documented), 200),
    "quotes": ("json.encoder", "Use double quotes", lambda text: text.replace("'", '"'), 60),
    "reindent": ("sched", "Indent by two spaces", each_line(narrower), 40),
    "reorder": ("statistics", "Swap two functions", reordered, 250),
    "delete a function": ("shlex", "Delete a function", without_function, 20),
    "translate comments": ("heapq", "Translate the comments", each_line(translated), 130),
    "replace a call": ("statistics", "Raise by `fail`", each_line(logged), 300),
    "rename the object": ("configparser", "Rename `self` to `this`", renamed(("self", "this")), 620),
}


def edits() -> dict[str, Edit]:
    """Return the edits by name."""
    found = {}
    for name, (module, instruction, change, first) in EDITS.items():
        before = source(module, first)
        found[name] = Edit(f"{instruction} and change nothing else. Give the whole code.", before, change(before))
    return found
