"""Reads TOML files that a person writes strictly: each mistake is reported in one sentence.

It names the file, the key and the nearest valid name. Knows TOML and pydantic; must not know the keys of any file.
"""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from runtime.core.errors import SlipstreamError, nearest
from runtime.core.outside import NotTextError, read_plain, text_of

T = TypeVar("T")
UNKNOWN = "unexpected_keyword_argument"  # pydantic's error type for a key that is no field of the dataclass
TYPES = {  # its error types for a value of a wrong type, and the required type
    "string_type": "str", "path_type": "str", "int_type": "int", "float_type": "float", "bool_type": "bool",
    "tuple_type": "list",
}  # fmt: skip
NUMBERS = {"finite_number": "that is finite", "int_from_float": "without a fraction"}


def read_toml(path: Path, error: type[SlipstreamError]) -> dict[str, Any]:
    """Return the tables of a file; {} if it does not exist. Raises `error`."""
    try:
        return parse_toml(path, read_plain(path), error)
    except FileNotFoundError:
        return {}
    except OSError as problem:
        raise error(f"{path} cannot be read ({problem.strerror}). Make it readable, or remove it.") from problem


def parse_toml(path: Path, text: bytes, error: type[SlipstreamError]) -> dict[str, Any]:
    """Return the tables in the text of a file. Raises `error`."""
    try:
        return tomllib.loads(text_of(text))
    except NotTextError as problem:
        raise error(f"{path} cannot be read ({problem}).") from problem
    except (ValueError, RecursionError) as problem:  # ValueError: not TOML, or a number of too many digits
        raise error(f"{path} is not valid TOML: {problem}. Correct that line.") from problem


def only_value(path: Path, data: dict[str, Any], name: str, error: type[SlipstreamError]) -> Any:
    """Return the value of the only valid key of a file, or an empty table. Raises `error` for any other key."""
    if unknown := next((key for key in data if key != name), None):
        raise error(f"{path}: unknown key '{unknown}'. {nearest(unknown, [name])}")
    return data.get(name, {})


def validated(kind: type[T], data: dict[str, Any], where: str, error: type[SlipstreamError], context: Any = None) -> T:
    """Return a table as the dataclass `kind`, whose annotations define validity. Raises `error` for a mistake."""
    try:
        found: T = adapter(kind).validate_python(data, context=context)  # type: ignore[arg-type]  # types are hashable
    except ValidationError as invalid:
        # A misspelt key comes first: it may be why another one is missing
        mistake = min(invalid.errors(include_url=False), key=lambda mistake: mistake["type"] != UNKNOWN)
        raise error(f"{where}: {sentence(kind, mistake)}") from invalid
    return found


@cache
def adapter(kind: Any) -> TypeAdapter[Any]:
    """Return the validator of a dataclass, cached as it is slow to build."""
    return TypeAdapter(kind)


def sentence(kind: Any, mistake: ErrorDetails) -> str:
    """Return the sentence about a mistake that pydantic found in a table of `kind`, with the remedy."""
    *tables, key = map(str, mistake["loc"])
    for table in tables:
        kind = get_type_hints(kind)[table]
    known = adapter(kind).json_schema()["properties"]
    heading = f"[{'.'.join(tables)}]: " if tables else ""
    if mistake["type"] == UNKNOWN:
        return f"{heading}unknown key '{key}'. {nearest(key, list(known))}"
    if mistake["type"] == "missing":
        return f"{heading}'{key}' is missing. {known[key]['description']}"
    return heading + about_value(key, mistake, known[key])


def about_value(key: str, mistake: ErrorDetails, schema: dict[str, Any]) -> str:
    """Return the sentence about an invalid value of a key, with the valid ones."""
    value = mistake["input"]
    match mistake["type"]:
        case "dataclass_type":
            return f"'{key}' must be a table, such as [{key}]."
        case "greater_than_equal" | "less_than_equal":
            return f"'{key}' is {value}. It must be from {schema['minimum']:,} to {schema['maximum']:,}."
        case kind if kind in TYPES:
            return f"'{key}' must be of type {TYPES[kind]}, not {type(value).__name__}."
        case kind if kind in NUMBERS:
            return f"{key} is {value}: it must be a number {NUMBERS[kind]}."
    return str(mistake.get("ctx", {}).get("error", mistake["msg"]))  # raised by a validator of our own
