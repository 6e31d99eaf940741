"""Commands that measure have the models in their own process. They are run as a child of the command that was typed,
so that what ends them ends with a sentence. Knows processes; knows no models.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence

from runtime.core.errors import SlipstreamError

MEASURING = (["bench"], ["doctor"], ["models", "pair"])
MARK = "SLIPSTREAM_GUARDED"  # in the child's environment


def must_guard(args: Sequence[str]) -> bool:
    """Does this command have models in its own process, and is it not the child already?"""
    is_help = not {"-h", "--help"}.isdisjoint(args)
    return any([*args[: len(each)]] == each for each in MEASURING) and not is_help and not os.environ.pop(MARK, "")


def guard(args: Sequence[str]) -> int:
    """The exit code of the command, run as a child. Raises SlipstreamError where that crashes."""
    from rich.console import Console

    from runtime.process.spawning import own_environment

    child = subprocess.Popen([sys.executable, "-P", "-m", "app.cli", *args], env=own_environment() | {MARK: "1"})
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to the child as well
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    code = child.wait()
    if code in (-signal.SIGINT, -signal.SIGTERM):
        return 128 - code  # as shells say it
    if code not in range(256):
        Console(stderr=True).show_cursor()  # whatever it showed has not been taken away
        raise SlipstreamError(
            f"The command was ended {how(code)}. What llama.cpp said is above: the model may be damaged, so fetch it "
            "again, or too large for the memory that is free."
        )
    return code


def how(code: int) -> str:
    """By which signal, where there are any."""
    return f"by {signal.Signals(-code).name}" if code < 0 else f"with code {code:#x}"
