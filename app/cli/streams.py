"""The command's standard streams: missing, interactive or abandoned. Knows descriptors; knows no models."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from typing import NoReturn

from app.terminal import is_dumb, print_message
from runtime.core.errors import SlipstreamError

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


def take_any_text() -> None:
    """Let standard output and error take every character, whatever their encoding: one that it lacks becomes "?".

    What Windows writes to a file or a pipe is UTF-8, as everywhere else, unless PYTHONIOENCODING says otherwise.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and not stream.encoding.lower().startswith("utf"):
            chosen = "PYTHONIOENCODING" in os.environ or stream.isatty() or sys.platform != "win32"
            stream.reconfigure(encoding=stream.encoding if chosen else "utf8", errors="replace")


def place(descriptor: int, number: int) -> int:
    """Move an open file to that descriptor and return it."""
    if descriptor != number:
        os.dup2(descriptor, number)
        os.close(descriptor)
    return number


def abandon_output() -> None:
    """Redirect standard output to the null device, so that the interpreter's final flush does not fail."""
    place(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def reader_may_leave() -> Iterator[None]:
    """End the block when the reader of standard output has closed the pipe."""
    try:
        yield
    except BrokenPipeError:
        abandon_output()


def fail(message: str, code: int) -> NoReturn:
    """Print one line on standard error and exit with the code."""
    print_message(message)
    raise SystemExit(code)


def is_terminal() -> bool:
    """Return whether both standard input and output are terminals."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def require_screen() -> None:
    """Raise SlipstreamError if there is no terminal, or one that only prints lines."""
    if is_dumb() or not is_terminal():
        needed = "a terminal that can move its cursor, unlike one with TERM=dumb" if is_dumb() else "a terminal"
        raise SlipstreamError(
            f'The chat needs {needed}. For one answer, use: slipstream run "What does os.path.join do?"'
        )
