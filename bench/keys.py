"""How long a key takes to the screen of the real chat, seen from outside its terminal, while a model streams:
`python -m bench.keys MODEL.gguf`.

The chat runs in a terminal of this process; a key has arrived when what was typed last comes back in one piece.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import random
import re
import select
import struct
import sys
import tempfile
import termios
import time
from contextlib import suppress
from pathlib import Path

import numpy as np

N_KEYS, PAUSES = 100, (0.03, 0.4)  # keys, and between which seconds the next one comes
LETTERS = "qxzjkv"  # that replies seldom have next to one another
TELLING = 3  # of them in a row are what was typed
QUESTION = "Repeat the word la a thousand times:" + " la" * 14  # which takes a small model a while without drafts
ESCAPES = re.compile(rb"\x1b\[[0-9;?<=>:]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[()][A-Z0-9]|\x1b[=>]")
ROWS, COLUMNS, PATIENCE = 36, 120, 90.0


class Screen:
    """The chat's end of a terminal, and what it has written there."""

    def __init__(self, command: list[str]) -> None:
        self.process, self._end = pty.fork()
        if not self.process:
            os.execvpe(command[0], command, os.environ | {"TERM": "xterm-256color"})
        fcntl.ioctl(self._end, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.written = b""

    def write(self, text: str) -> None:
        """As if it was typed."""
        os.write(self._end, text.encode())

    def look(self, seconds: float) -> None:
        """Reads what comes within that time, if anything does."""
        if select.select([self._end], [], [], seconds)[0]:
            self.written += os.read(self._end, 1 << 16)

    def until(self, text: str, start: int, patience: float = PATIENCE) -> bool:
        """Waits for the text in what is written from a place on; did it come?"""
        end = time.perf_counter() + patience
        while time.perf_counter() < end:
            if text.encode() in ESCAPES.sub(b"", self.written[start:]):
                return True
            self.look(0.01)
        return False

    def end(self) -> None:
        """Waits until the chat has left."""
        with suppress(OSError):  # what a terminal says that nobody writes to any more
            self.until("never", len(self.written))
        os.waitpid(self.process, 0)


def measure(screen: Screen) -> list[float]:
    """Seconds of each key while the reply comes; infinite for one that did not arrive within a second."""
    letters, taken, typed = random.Random(1), list[float](), "".join(LETTERS[:TELLING])
    screen.write(typed)
    screen.until(typed, 0)
    for _ in range(N_KEYS):
        start, began = len(screen.written), time.perf_counter()
        letter = letters.choice([each for each in LETTERS if each != typed[-1]])
        typed += letter
        screen.write(letter)
        came = screen.until(typed[-TELLING:], start, 1.0)
        taken.append(time.perf_counter() - began if came else float("inf"))
        pause = time.perf_counter() + letters.uniform(*PAUSES)
        while time.perf_counter() < pause:
            screen.look(0.005)
    return taken


def main() -> None:
    """Runs the chat and tells."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--question", default=QUESTION, help="its reply must last for half a minute")
    told = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        chats = str(Path(folder) / "chats.db")
        screen = Screen(
            [
                sys.executable,
                "-m",
                "app.cli",
                "chat",
                told.model,
                "--chats",
                chats,
                "--temperature",
                "0",
                "--drafters",
                "none",
            ]
        )
        assert screen.until("is ready", 0)
        screen.write(f"{told.question}\r")
        assert screen.until("tok/s", 0)
        taken = measure(screen)
        before = len(screen.written)
        screen.write("\x1b")
        streams = screen.until("stopped", before, 5.0)  # a reply that still came
        screen.write("\x11")
        screen.end()
    p50, p95, worst = (1e3 * float(np.percentile(taken, share)) for share in (50, 95, 100))
    print(json.dumps({"p50_ms": round(p50, 1), "p95_ms": round(p95, 1), "max_ms": round(worst, 1), "streams": streams}))


if __name__ == "__main__":
    main()
