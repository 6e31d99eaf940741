"""A command in a terminal of its own: what it writes, the keys it is sent, and what it leaves behind."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from tests.support.waiting import PATIENCE, wait_for

# Escape sequences that change a terminal until the second one of each is written
SWITCHES = {
    "alternate screen": ("\x1b[?1049h", "\x1b[?1049l"),
    "mouse": ("\x1b[?1003h", "\x1b[?1003l"),
    "hidden cursor": ("\x1b[?25l", "\x1b[?25h"),
    "bracketed paste": ("\x1b[?2004h", "\x1b[?2004l"),
    "reports of focus": ("\x1b[?1004h", "\x1b[?1004l"),
    "no line wrap": ("\x1b[?7l", "\x1b[?7h"),
}
ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|[^\[])")
ROWS, COLUMNS = 30, 100


class PseudoTerminal:
    """A terminal, and a command that it controls, as a window of a desktop would."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.modes_before = termios.tcgetattr(theirs)
        # Who opens it first in a new session is controlled by it
        opened = ["sh", "-c", 'exec "$@" <"$0" >"$0" 2>&1', os.ttyname(theirs), *command]
        self.process = subprocess.Popen(opened, start_new_session=True, env={**env, "TERM": "xterm-256color"})
        self._theirs, self._is_closing, self.shown = theirs, False, ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while not self._is_closing:
            if select.select([self._ours], [], [], 0.1)[0]:
                with suppress(OSError):  # nobody has it open
                    self.shown += os.read(self._ours, 65536).decode("utf8", "replace")

    @property
    def text(self) -> str:
        """What was written, without its escape sequences."""
        return " ".join(ESCAPES.sub(" ", self.shown).split())

    def until(self, *words: str) -> None:
        """Wait until that is shown."""
        wait_for(lambda: all(word in self.text for word in words))

    def keys(self, text: str) -> None:
        """Type."""
        os.write(self._ours, text.encode())

    def hang_up(self) -> None:
        """Close the terminal, in which the command may run."""
        self._is_closing = True
        self._reader.join()
        os.close(self._theirs)
        os.close(self._ours)

    def ended(self) -> int:
        """Wait for the end of the command, and return its code: minus the number of a signal."""
        return self.process.wait(PATIENCE)

    def left_on(self) -> list[str]:
        """What the command changed of the terminal and did not restore."""
        size = -1
        while size != (size := len(self.shown)):
            time.sleep(0.2)
        last = {name: [self.shown.rfind(each) for each in pair] for name, pair in SWITCHES.items()}
        found = [name for name, (on, off) in last.items() if on > off]
        return found + ["modes"] * (termios.tcgetattr(self._theirs) != self.modes_before)

    def close(self) -> None:
        """End the command, if it still runs, and the terminal."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if not self._is_closing:
            self.hang_up()
