"""What libraries promise nobody is named in one file for each of them: imports, symbols, and what Textual's widgets
keep inside. Ruff's SLF001 sees to attributes of other objects.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import app.tui
from app.tui import private_textual
from tests.repository.test_private_interfaces import PRIVATE

ROOT = Path(__file__).parents[2]
UNLISTED = "huggingface_hub.utils", "llama_cpp.llama_cpp_ext"  # modules that no underscore marks


def is_private(module: str, name: str = "") -> bool:
    """Does that name of a module have an underscore on its way, or is it known to be none's?"""
    parts = [*module.split("."), name]
    return module in UNLISTED or any(part.startswith("_") and not part.startswith("__") for part in parts)


def imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Return what a file imports, as (module, name)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((each.name, "") for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", each.name) for each in node.names)


def test_private_names_of_libraries_are_imported_in_their_files_alone() -> None:
    files = [path for room in ("app", "runtime") for path in (ROOT / room).rglob("*.py")]
    found = {
        (str(path.relative_to(ROOT)), module, name)
        for path in files
        for module, name in imported(ast.parse(path.read_text(encoding="utf8")))
        if module.split(".")[0] not in ("app", "runtime", "__future__") and is_private(module, name)
    }
    assert {(file, module) for file, module, _ in found} == {
        (PRIVATE["textual"], "textual.widgets._markdown"),
        (PRIVATE["huggingface_hub"], "huggingface_hub.utils"),
        (PRIVATE["huggingface_hub"], "huggingface_hub.utils._http"),
    }


def test_symbols_of_cplusplus_are_named_in_one_file() -> None:
    mangled = re.compile(r"\b_Z[A-Z]*\d+|@@[QY]")
    found = [path for path in (ROOT / "runtime").rglob("*.py") if mangled.search(path.read_text(encoding="utf8"))]
    assert [str(path.relative_to(ROOT)) for path in found] == [PRIVATE["llama_cpp"]]


def named(kind: type) -> set[str]:
    """Return the attributes and functions that a class's own text names."""
    nodes = ast.walk(ast.parse(textwrap.dedent(inspect.getsource(kind))))
    return {getattr(node, "attr", "") or getattr(node, "name", "") for node in nodes}


def kept_inside(kind: type) -> set[str]:
    """Return the names with an underscore that Textual's classes under `kind` have, or give their objects."""
    theirs = [base for base in kind.__mro__ if base.__module__.startswith("textual.")]
    return {name for base in theirs for name in inner_names(base)}


@cache
def inner_names(base: type) -> set[str]:
    """Return those that the class has itself, or gives its objects."""
    names = [*vars(base), *re.findall(r"\bself\.(_\w+)\b[^=\n]*=[^=]", inspect.getsource(base))]
    # Textual's guide has handlers named _on_key
    return {name for name in names if name.startswith("_") and not name.startswith(("__", "_on_"))}


def test_no_widget_uses_or_overrides_by_chance_what_textual_keeps_inside() -> None:
    names = [each.name for each in pkgutil.walk_packages(app.tui.__path__, "app.tui.")]
    kinds = {
        kind
        for name in names
        for kind in vars(importlib.import_module(name)).values()
        if inspect.isclass(kind) and kind.__module__ == name != private_textual.__name__
    }
    assert {kind.__qualname__: found for kind in kinds if (found := named(kind) & kept_inside(kind))} == {}
