"""Runs measuring commands, which load models into their own process, as a child process. A crash then ends with an
error message.

Knows processes; knows no models.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from app.terminal import ENDING
from runtime.core.errors import SlipstreamError

MEASURING = (["bench"], ["doctor"], ["models", "pair"], ["models", "distill"])


def must_guard(args: Sequence[str]) -> bool:
    """Whether this command loads models into its own process, so that it must run as a child process."""
    is_help = not {"-h", "--help"}.isdisjoint(args)
    return any([*args[: len(each)]] == each for each in MEASURING) and not is_help


def guard(args: Sequence[str]) -> int:
    """Run the command as a child process, without a search for a draft model meanwhile. Return its exit code: 128 +
    signal if that was a signal of the user's. Raises SlipstreamError if it crashes.
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
