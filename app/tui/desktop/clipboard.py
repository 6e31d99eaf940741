"""The desktop's clipboard, for terminals that do not implement copying (OSC 52). Knows no widgets."""

from __future__ import annotations

from contextlib import suppress

import pyperclip


def copy_to_desktop(text: str) -> None:
    """Copy a text; do nothing without a desktop or a clipboard program."""
    with suppress(pyperclip.PyperclipException):
        pyperclip.copy(text)
