"""The desktop's clipboard, for terminals that do not implement copying (OSC 52), and what keeps OSC 52 from the
terminal. Knows no widgets.
"""

from __future__ import annotations

import os
import subprocess

import pyperclip

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
