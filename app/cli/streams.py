"""The standard streams of the command: there or not, read or abandoned. Knows descriptors; knows no models."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from app.terminal import inert

STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))  # by their numbers


def fill_gaps() -> None:
    """Opens the streams that the command was started without, onto nothing.

    Else the next file that is opened has such a number, and is what a library, or a child, takes for its output.
    """
    for number, (name, mode) in enumerate(STREAMS):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(place(os.open(os.devnull, os.O_RDWR), number), True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf8"))  # noqa: PTH123, SIM115 (as long as we run)


def place(descriptor: int, number: int) -> int:
    """Has an open file that number, and no other."""
    if descriptor != number:
        os.dup2(descriptor, number)
        os.close(descriptor)
    return number


def abandon_output() -> None:
    """Keeps the interpreter from flushing, on its way out, into a stream that takes nothing any more."""
    place(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def fail(message: str, code: int) -> NoReturn:
    """One line on standard error, then the exit code."""
    print(f"slipstream: {inert(message)}", file=sys.stderr)
    raise SystemExit(code)


def is_terminal() -> bool:
    """Is there a person at both ends?"""
    return sys.stdin.isatty() and sys.stdout.isatty()
