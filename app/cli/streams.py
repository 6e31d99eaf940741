"""The command's standard streams: missing, interactive or abandoned. Knows descriptors; knows no models."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from app.terminal import inert

STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))  # in order of their descriptors


def fill_gaps() -> None:
    """Open missing standard streams on the null device.

    Otherwise the next opened file gets such a descriptor, and a library or a child process writes its output into it.
    """
    for number, (name, mode) in enumerate(STREAMS):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(place(os.open(os.devnull, os.O_RDWR), number), True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf8"))  # noqa: PTH123, SIM115 (as long as we run)


def place(descriptor: int, number: int) -> int:
    """Move an open file to that descriptor and return it."""
    if descriptor != number:
        os.dup2(descriptor, number)
        os.close(descriptor)
    return number


def abandon_output() -> None:
    """Redirect standard output to the null device, so that the interpreter's final flush does not fail."""
    place(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def fail(message: str, code: int) -> NoReturn:
    """Print one line on standard error and exit with the code."""
    print(f"slipstream: {inert(message)}", file=sys.stderr)
    raise SystemExit(code)


def is_terminal() -> bool:
    """Return whether both standard input and output are terminals."""
    return sys.stdin.isatty() and sys.stdout.isatty()
