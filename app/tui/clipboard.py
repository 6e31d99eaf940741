"""Copying a text through the terminal and to the desktop, and whether it has arrived in a clipboard.

Knows screens and programs; knows no message of a chat.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from typing import Any

import pyperclip
from textual.screen import Screen

NOT_PASSED = "tmux does not pass it on. Run `tmux set -g set-clipboard on`, then copy again."
NOT_TAKEN = "the terminal around tmux takes none. Inside tmux, its prefix and ] paste the text."
TIMEOUT = 2.0  # seconds for tmux to reply


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
