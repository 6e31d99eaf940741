"""Messages that were written while a reply comes and are sent when it has ended, in their order.

Knows texts; sends nothing.
"""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from app.tui.pieces import clean

SHOWN = 3  # messages that have a line each; more are counted
HINT = "Sent when the model is free · Up changes the last one · Esc takes back all"


class MessageQueue(Static):
    """Shows what waits, the next one first; nothing while nothing does."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.display = False

    def add(self, text: str) -> None:
        """Has a message wait behind those that do."""
        self._change([*self.texts, text])

    def take_next(self) -> str | None:
        """The one that waits longest, which waits no more."""
        return self._take(0)

    def take_last(self) -> str | None:
        """The one that was written last, which waits no more."""
        return self._take(-1)

    def take_all(self) -> str:
        """All of them as one text; none waits any more."""
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
