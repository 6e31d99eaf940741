"""The desktop's clipboard, for terminals that do not pass on what they are told to copy (OSC 52). Knows no widgets."""

from __future__ import annotations

from contextlib import suppress

import pyperclip


def copy_to_desktop(text: str) -> None:
    """Copies a text; does nothing where there is no desktop, or no program for its clipboard."""
    with suppress(pyperclip.PyperclipException):
        pyperclip.copy(text)
