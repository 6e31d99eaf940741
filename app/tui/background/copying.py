"""Copies a text to the clipboard and reports whether it has arrived there.

Knows screens and the desktop; knows no message of a chat.
"""

from __future__ import annotations

import asyncio
from typing import Any

from textual.screen import Screen

from app.tui.desktop.clipboard import copy_to_desktop, obstacle


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
