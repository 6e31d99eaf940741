"""The terminal takes what is copied, is given to the person's own editor, and is as before when a signal ends the chat.

Knows processes, signals and event loops; knows no widget but the app that it suspends, and no message of a chat.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from types import FrameType
from typing import Any

import pyperclip
from textual.app import App, SuspendNotSupported
from textual.screen import Screen

from app.terminal import ENDING, handling
from runtime.core.errors import SettingsError
from runtime.core.outside import NotTextError, text_of

POLL = 0.05  # seconds between two looks at whether the editor has ended
MAX_WAIT = 10.0  # seconds that the chat may take to end, if its terminal takes no output any more
# Signals that stop and continue a program in the background
STOPPING = [getattr(signal, name) for name in ("SIGTSTP", "SIGCONT", "SIGTTOU") if hasattr(signal, name)]
# Why a copied text has not arrived
NOT_PASSED = "tmux does not pass it on. Run `tmux set -g set-clipboard on`, then copy again."
NOT_TAKEN = "the terminal around tmux takes none. Inside tmux, its prefix and ] paste the text."
TIMEOUT = 2.0  # seconds for tmux to reply


def write_in_editor(app: App[None], text: str) -> str:
    """Open a text in the editor and return the edited text. Raises SettingsError if the editor cannot run."""
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ("notepad" if sys.platform == "win32" else "vi")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "message.md"
        path.write_text(text, encoding="utf8")
        try:
            with app.suspend():
                edit([*words_of(command), str(path)])
        except (OSError, ValueError) as error:
            raise SettingsError(
                f"The editor '{command}' cannot be run ({error}). Set EDITOR to one that can."
            ) from error
        except SuspendNotSupported as error:
            raise SettingsError("This terminal cannot run an editor. Write here; Ctrl+J starts a line.") from error
        return edited(path)


def words_of(command: str) -> list[str]:
    """Return the words of a command line as this system's shells part them. Raises ValueError."""
    if sys.platform == "win32":  # where a backslash is a part of a path
        return [word.strip('"') for word in shlex.split(command, posix=False)]
    return shlex.split(command)


def edited(path: Path) -> str:
    """Return the text that the editor saved. Raises SettingsError naming a copy of one in another encoding."""
    try:
        return text_of(path.read_bytes()).rstrip("\n")
    except NotTextError as error:
        kept = path.replace(Path(tempfile.mkdtemp()) / path.name)
        raise SettingsError(f"What the editor saved cannot be read ({error}). It is kept in {kept}.") from error


def edit(command: Sequence[str]) -> None:
    """Run the editor until it ends. A signal that ends the chat ends the editor first, but Ctrl+C is the editor's."""
    before = {number: signal.getsignal(number) for number in ENDING}
    with subprocess.Popen(command) as process:

        def pass_on(number: int, frame: FrameType | None) -> None:
            if number != signal.SIGINT:
                process.send_signal(number)
                if callable(handle := before[number]):
                    handle(number, frame)

        with handling(pass_on):
            while process.poll() is None:  # a call that blocks would miss a signal that another thread receives
                time.sleep(POLL)


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


def copy_to_desktop(text: str) -> bool:
    """Copy a text; return whether there is a desktop with a clipboard program."""
    try:
        pyperclip.copy(text)
    except pyperclip.PyperclipException:
        return False
    return True


def obstacle() -> str:
    """Return why the terminal does not get a copied text, with the remedy; "" if nothing is known to be in the way."""
    if not os.environ.get("TMUX"):
        return ""
    if asked("show", "-gv", "set-clipboard").strip() in ("external", "off"):
        return NOT_PASSED
    terminals = asked("show-messages", "-T")  # the capability Ms is copying, of each attached terminal
    return NOT_TAKEN if "Ms: [missing]" in terminals and "Ms: (" not in terminals else ""


def asked(*words: str) -> str:
    """Return the output of a tmux command; "" without tmux."""
    try:
        done = subprocess.run(["tmux", *words], capture_output=True, text=True, timeout=TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def copy_text(screen: Screen[Any], text: str, what: str) -> None:
    """Copy through the terminal, which may run on another machine, and to this machine's desktop."""
    if text:
        screen.app.copy_to_clipboard(text)
        screen.run_worker(tell_copied(screen, text, what), group="copying")
    else:
        screen.notify(f"There is no {what}.")


async def tell_copied(screen: Screen[Any], text: str, what: str) -> None:
    """Copy to the desktop, whose programs may be slow, and show whether the text is in a clipboard."""
    fault = "" if await asyncio.to_thread(copy_to_desktop, text) else await asyncio.to_thread(obstacle)
    if fault:
        screen.notify(f"The {what} is not in the clipboard: {fault}", severity="warning")
    else:
        screen.notify(f"Copied the {what}.")
