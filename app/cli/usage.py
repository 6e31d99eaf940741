"""Runs the Typer app so that what it says about errors cannot command the terminal: they repeat what was typed."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from app.terminal import InertFormatter, inert

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
ClickError = typer.BadParameter.__mro__[2]  # of all errors of usage; Typer exports no name for it


def run_app(app: typer.Typer, args: Sequence[str]) -> None:
    """Run the command with these arguments. Raises SystemExit, and what the command raises."""
    if logging.lastResort is not None:  # it writes warnings that no other handler takes
        logging.lastResort.setFormatter(InertFormatter())
    try:
        code = app(args, prog_name="slipstream", standalone_mode=False)
    except typer.Abort:
        from typer.rich_utils import rich_abort_error

        rich_abort_error()
        code = 1
    except Exception as error:
        if not isinstance(error, ClickError):
            raise
        code = shown(error)
    raise SystemExit(code or 0)


def shown(error: Any) -> int:
    """Show an error of usage with its control characters as symbols, and return its exit code."""
    from pydantic import ValidationError
    from typer.rich_utils import rich_format_error

    if isinstance(error.__cause__, ValidationError):
        error.message = reason(error.__cause__)
    message = inert(error.format_message())
    error.format_message = lambda: message
    rich_format_error(error)
    return int(error.exit_code)


def is_lack_of_memory(error: BaseException) -> bool:
    """Whether an error is one of those that Python's parser, imports, threads and the loader raise without memory."""
    if isinstance(error, ImportError | RuntimeError):
        return any(sign in str(error) for sign in ("failed to map segment", "can't start new thread"))
    return True


def reason(error: ValidationError) -> str:
    """Return the first reason as a sentence; pydantic's own if it has no other here."""
    first: Any = error.errors()[0]
    text = REASONS.get(first["type"])
    if text is None:
        return str(first["msg"]).removeprefix("Value error, ").rstrip(".") + "."
    return text.format(input=first["input"], **first.get("ctx", {}))
