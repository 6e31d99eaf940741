"""Runs measuring commands, which load models into their own process, as a child process. A crash then ends with an
error message.

Knows processes; knows no models.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from runtime.core.errors import SlipstreamError

MEASURING = (["bench"], ["doctor"], ["models", "pair"], ["models", "distill"])
MARK = "SLIPSTREAM_GUARDED"  # in the child's environment


def must_guard(args: Sequence[str]) -> bool:
    """Whether this command loads models into its own process and is not the child process already."""
    is_help = not {"-h", "--help"}.isdisjoint(args)
    return any([*args[: len(each)]] == each for each in MEASURING) and not is_help and not os.environ.pop(MARK, "")


def guard(args: Sequence[str]) -> int:
    """Run the command as a child process and return its exit code. Raises SlipstreamError if it crashes."""
    from rich.console import Console

    from runtime.core.packages import own_environment

    child = subprocess.Popen([sys.executable, "-P", "-m", "app.cli", *args], env=own_environment() | {MARK: "1"})
    reaches_child = is_in_foreground()
    signal.signal(signal.SIGINT, lambda number, _: None if reaches_child else child.send_signal(number))
    signal.signal(signal.SIGTERM, lambda number, _: child.send_signal(number))
    code = child.wait()
    if code in (-signal.SIGINT, -signal.SIGTERM):
        return 128 - code  # 128 + signal, as in shells
    if code not in range(256):
        console = Console(stderr=True)
        console.show_cursor()  # the child may have left it hidden
        console.print("\n" * console.is_terminal, end="")
        raise SlipstreamError(
            f"The command was ended {how(code)}. See llama.cpp's message above: the model may be damaged (fetch it "
            "again) or too large for the free memory."
        )
    return code


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
