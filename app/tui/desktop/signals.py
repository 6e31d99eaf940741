"""Signals that end a program close the chat: its terminal is as it was before, and the reply so far is kept.

Knows signals and event loops; knows no widgets.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer
from types import FrameType

from app.terminal import handling

MAX_WAIT = 10.0  # seconds that the chat may take to end, if its terminal takes no output any more
# Signals that stop and continue a program in the background
STOPPING = [getattr(signal, name) for name in ("SIGTSTP", "SIGCONT", "SIGTTOU") if hasattr(signal, name)]


@contextmanager
def closed_by_signals(close: Callable[[int], object]) -> Iterator[None]:
    """Call `close` on the running event loop with the exit code when a signal ends the program, until the block ends.

    Not after that: what is left to do may be interrupted by a second signal.
    """
    loop = asyncio.get_running_loop()

    def end(number: int, _: FrameType | None) -> None:
        for other in STOPPING:  # a chat that was stopped has left the terminal to others
            signal.signal(other, lambda *_: None)
        deadline = Timer(MAX_WAIT, os._exit, [128 + number])
        deadline.daemon = True
        deadline.start()
        loop.call_soon_threadsafe(close, 128 + number)

    with handling(end):
        yield
