"""A class's name stands for one class: whoever reads or searches it need not ask which of several is meant."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def places_by_class(sources: Mapping[str, str]) -> dict[str, list[str]]:
    """Return `path:line` of every class, nested ones too, by its name; `sources` has texts by path."""
    places = defaultdict[str, list[str]](list)
    for path, text in sources.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path}:{node.lineno}")
    return places


def shared_names(sources: Mapping[str, str]) -> list[str]:
    """Return a line for each name that stands for several classes."""
    return [
        f"{name} is {' and '.join(places)}: rename the less central one, so that the name says what it is"
        for name, places in places_by_class(sources).items()
        if len(places) > 1
    ]


def test_each_class_name_of_the_runtime_and_the_app_stands_for_one_class() -> None:
    files = [path for room in ("runtime", "app") for path in sorted((ROOT / room).rglob("*.py"))]
    sources = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf8") for path in files}
    assert len(places_by_class(sources)) > 100
    if found := shared_names(sources):
        pytest.fail("\n".join(found), pytrace=False)
