"""The line below the messages that reports on the reply while the person has scrolled up. Knows no chat."""

from __future__ import annotations

from textual.widgets import Static

COMES, HAS_ENDED = "▾ The reply continues below. End shows it.", "▾ The reply has ended below. End shows it."


class BelowLine(Static):
    """A line that is only visible while it has text."""

    def __init__(self) -> None:
        super().__init__(id="below", markup=False)
        self._text = ""

    def say(self, text: str) -> None:
        """Show that text from now on; "" hides the line."""
        if text != self._text:
            self._text = text
            self.update(text)
            self.display = bool(text)
