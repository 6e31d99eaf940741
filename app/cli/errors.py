"""How a command fails: errors of usage, and crashes of the models' process, each as one message.

Errors repeat what was typed, so their control characters are shown as symbols: none can command the terminal.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from app.terminal import ENDING, InertFormatter, in_order
from runtime.core.errors import SlipstreamError

if TYPE_CHECKING:
    from pydantic import ValidationError

MEASURING = (["bench"], ["doctor"], ["models", "pair"], ["models", "distill"])
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
NO_COMMAND = "No such command '"
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
    message = in_order(error.format_message() + of_a_model(error.format_message()))
    error.format_message = lambda: message
    rich_format_error(error)
    return int(error.exit_code)


def of_a_model(message: str) -> str:
    """Return the commands for a model whose name was given instead of a command; "" for another message."""
    from runtime.models.registry import load_registry

    if not message.startswith(NO_COMMAND) or (name := message.removeprefix(NO_COMMAND).partition("'")[0]) == "":
        return ""
    with suppress(SlipstreamError):  # the registry cannot be read
        if name in load_registry():
            chat, run = f"`slipstream chat {name}`", f"`slipstream run -m {name} ...`"
            return f" {name} is a model: {chat} opens a chat with it, {run} asks it once."
    return ""


def reason(error: ValidationError) -> str:
    """Return the first reason as a sentence; pydantic's own if it has no other here."""
    first: Any = error.errors()[0]
    text = REASONS.get(first["type"])
    if text is None:
        return str(first["msg"]).removeprefix("Value error, ").rstrip(".") + "."
    return text.format(input=first["input"], **first.get("ctx", {}))


def must_guard(args: Sequence[str]) -> bool:
    """Whether this command loads models into its own process, so that it must run as a child process."""
    is_help = not {"-h", "--help"}.isdisjoint(args)
    return any([*args[: len(each)]] == each for each in MEASURING) and not is_help


def guard(args: Sequence[str]) -> int:
    """Run a command that loads models into its own process as a child process, without a search for a draft model
    meanwhile. Return its exit code: 128 + signal if that was a signal of the user's. Raises SlipstreamError if it
    crashes.
    """
    from rich.console import Console

    from app.models.search_process import end_running
    from runtime.core.children import Child

    end_running()
    child = Child("app.cli", *args, stdin=0, stdout=1, stderr=2)
    reaches_child = is_in_foreground()
    for number in ENDING:
        is_sent = number == signal.SIGINT and reaches_child  # by the terminal
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, (lambda *_: None) if is_sent else lambda number, _: child.send_signal(number))
    code = child.wait()
    if code in range(256):
        return code
    if -code in ENDING:
        return 128 - code
    console = Console(stderr=True)
    console.show_cursor()  # the child may have left it hidden
    console.print("\n" * console.is_terminal, end="")
    raise SlipstreamError(
        f"The command was ended {how(code)}. See llama.cpp's message above: the model may be damaged (fetch it "
        "again) or too large for the free memory."
    )


def is_in_foreground() -> bool:
    """Whether a terminal sends Ctrl+C to this process and its children."""
    if sys.platform == "win32":
        return True
    try:
        with Path("/dev/tty").open("rb") as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False


def how(code: int) -> str:
    """Return the signal or the code that a process ended with, in words."""
    return f"by {signal.Signals(-code).name}" if code < 0 else f"with code {code:#x}"
