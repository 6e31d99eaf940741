"""Shared groups of options: a command takes a dataclass whose fields are the options.

Knows signatures; knows no option.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter, signature
from typing import Any, get_type_hints


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with the signature for Typer: the fields of each dataclass in place of the dataclass."""
    seen = signature(command, eval_str=True)
    groups: dict[str, Any] = {
        name: each.annotation for name, each in seen.parameters.items() if is_dataclass(each.annotation)
    }

    @wraps(command)
    def with_fields(**given: Any) -> None:
        made = {
            name: group(**{each.name: given.pop(each.name) for each in fields(group)}) for name, group in groups.items()
        }
        command(**given, **made)

    options = [option for each in seen.parameters.values() for option in options_of(each)]
    with_fields.__signature__ = seen.replace(parameters=options)  # type: ignore[attr-defined]
    return with_fields


def options_of(parameter: Parameter) -> Iterator[Parameter]:
    """Yield the parameter itself, or one parameter for each field of its dataclass."""
    group = parameter.annotation
    if not is_dataclass(group):
        yield parameter.replace(kind=Parameter.KEYWORD_ONLY)
        return
    hints = get_type_hints(group, include_extras=True)
    for each in fields(group):
        yield Parameter(each.name, Parameter.KEYWORD_ONLY, default=each.default, annotation=hints[each.name])
