"""Messages that were written during a reply and are sent, in order, after it has ended.

Knows texts; sends nothing.
"""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from app.tui.pieces import clean

SHOWN = 3  # messages that have a line each; more are counted
HINT = "Sent when the model is free · Up changes the last one · Esc takes back all"


class MessageQueue(Static):
    """Shows the waiting messages, the next one first; hidden while there are none."""

    def __init__(self) -> None:
        super().__init__(markup=False)
        self.texts: list[str] = []
        self.display = False

    def add(self, text: str) -> None:
        """Add a message at the end of the queue."""
        self._change([*self.texts, text])

    def take_next(self) -> str | None:
        """Remove and return the oldest message."""
        return self._take(0)

    def take_last(self) -> str | None:
        """Remove and return the newest message."""
        return self._take(-1)

    def take_all(self) -> str:
        """Remove all messages and return them as one text."""
        texts = "\n\n".join(self.texts)
        self._change([])
        return texts

    def _take(self, at: int) -> str | None:
        if not self.texts:
            return None
        rest = list(self.texts)
        taken = rest.pop(at)
        self._change(rest)
        return taken

    def _change(self, texts: list[str]) -> None:
        self.texts, self.display = texts, bool(texts)
        lines = [f"▸ {clean(' '.join(text.split()))}" for text in texts[:SHOWN]]
        lines += [f"  and {len(texts) - SHOWN} more"] * (len(texts) > SHOWN)
        self.update(Content.assemble("\n".join(lines), (f"\n  {HINT}", "dim")))
