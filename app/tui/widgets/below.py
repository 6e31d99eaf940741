"""The line below the messages that says what the reply does where one has scrolled up. Knows no chat."""

from __future__ import annotations

from textual.widgets import Static

COMES, HAS_ENDED = "▾ The reply goes on below. End shows it.", "▾ The reply has ended below. End shows it."


class BelowLine(Static):
    """Is there only while it says something."""

    def __init__(self) -> None:
        super().__init__(id="below")
        self._text = ""

    def say(self, text: str) -> None:
        """Says that from now on; "" for nothing."""
        if text != self._text:
            self._text = text
            self.update(text)
            self.display = bool(text)
