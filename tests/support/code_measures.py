"""How large the pieces of a Python file are. Knows syntax trees; must not know what is too much."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import NamedTuple

Function = ast.FunctionDef | ast.AsyncFunctionDef
NOT_CONSTANTS = ("TypeVar", "ParamSpec", "NewType")  # whose names are in capitals, but which are types
DATA = ("BaseModel", "RootModel", "Enum", "IntEnum", "StrEnum", "Flag")  # whose fields are a format's or a list's


class Measure(NamedTuple):
    """A size of `place`, which is `path` or `path::Class.function`."""

    kind: str
    place: str
    value: int


def measures(sources: Mapping[str, str]) -> Iterator[Measure]:
    """Yield all sizes of the files in `sources`, their texts by path."""
    trees = {path: ast.parse(text) for path, text in sources.items()}
    data = data_classes(trees.values())
    for path, tree in trees.items():
        yield Measure("lines", path, len(sources[path].splitlines()))
        yield Measure("constants", path, len(constants(tree)))
        for name, node in definitions(tree):
            if not isinstance(node, ast.ClassDef):
                yield Measure("function lines", f"{path}::{name}", (node.end_lineno or 0) - node.lineno + 1)
                yield Measure("parameters", f"{path}::{name}", n_parameters(node))
            elif node.name not in data and has_behaviour(node):
                yield Measure("attributes", f"{path}::{name}", len(attributes(node)))


def definitions(node: ast.AST, within: str = "") -> Iterator[tuple[str, Function | ast.ClassDef]]:
    """Yield each function and class below `node`, nested ones too, with its dotted name."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function | ast.ClassDef):
            yield f"{within}{child.name}", child
            yield from definitions(child, f"{within}{child.name}.")
        else:
            yield from definitions(child, within)


def n_parameters(function: Function) -> int:
    """Return how many there are, `self` and `cls` left out; `*args` is one."""
    given = function.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    return len([each for each in every if each and each.arg not in ("self", "cls")])


def constants(tree: ast.Module) -> set[str]:
    """Return the names in capitals that the module gives values to."""
    assigned = [statement for statement in tree.body if isinstance(statement, ast.Assign | ast.AnnAssign)]
    targets = [
        target
        for each in assigned
        if not (isinstance(each.value, ast.Call) and ast.unparse(each.value.func).endswith(NOT_CONSTANTS))
        for target in (each.targets if isinstance(each, ast.Assign) else [each.target])
    ]
    names = {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}
    return {name for name in names if name.isupper()}


def data_classes(trees: Iterator[ast.Module] | list[ast.Module]) -> set[str]:
    """Return the names of the classes that descend from DATA, whichever file their bases are in."""
    bases = {
        node.name: {ast.unparse(base).partition("[")[0] for base in node.bases}
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    found = set(DATA)
    while more := {name for name, above in bases.items() if above & found} - found:
        found |= more
    return found


def has_behaviour(of: ast.ClassDef) -> bool:
    """Has it a method besides properties and those that Python calls?"""
    methods = [node for node in of.body if isinstance(node, Function)]
    return any(
        not (method.name.startswith("__") and method.name.endswith("__"))
        and not any("property" in ast.unparse(decorator) for decorator in method.decorator_list)
        for method in methods
    )


def attributes(of: ast.ClassDef) -> set[str]:
    """Return what an object of it holds: annotated fields, and what methods assign to `self`."""
    fields = {
        node.target.id
        for node in of.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and not is_of_class(node)
    }
    assigned = {
        node.attr
        for node in ast.walk(of)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"
    }
    return fields | assigned


def is_of_class(field: ast.AnnAssign) -> bool:
    """Is it the class's own, not one of each object?"""
    return "ClassVar" in ast.unparse(field.annotation)
