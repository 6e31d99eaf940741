"""Why an option's value is refused, in plain words. Knows the errors of pydantic, with which Typer checks values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import ValidationError

REASONS = {
    "int_parsing": "'{input}' is no whole number.",
    "int_from_float": "'{input}' is no whole number.",
    "int_type": "'{input}' is no whole number.",
    "int_parsing_size": "{input} has too many digits.",
    "float_parsing": "'{input}' is no number.",
    "float_type": "'{input}' is no number.",
    "finite_number": "'{input}' is no number.",
    "greater_than_equal": "{input} is too small: it must be at least {ge:g}.",
    "less_than_equal": "{input} is too large: it may be at most {le:g}.",
}


def reason(error: ValidationError) -> str:
    """Return the first reason as a sentence; pydantic's own if it has no other here."""
    first: Any = error.errors()[0]
    text = REASONS.get(first["type"])
    if text is None:
        return str(first["msg"]).removeprefix("Value error, ").rstrip(".") + "."
    return text.format(input=first["input"], **first.get("ctx", {}))
