"""The line above the prompt: what is being loaded, read or fetched, the numbers of the reply, and the reason when
speculation is off.
"""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Label, ProgressBar, Static

from app.tui.numbers import fitted

MARGIN = 2


class StatusLine(Vertical):
    """One line, and one more for what must not be overlooked."""

    def __init__(self) -> None:
        super().__init__()
        self._words: list[str] = []
        self._sentence = self._requests = ""

    def compose(self) -> ComposeResult:
        """A progress bar that is there while something loads, the numbers, a sentence."""
        with Horizontal(id="progress"):
            yield Label(id="what", markup=False)
            yield ProgressBar(total=1.0, show_eta=False)
        with Horizontal(id="fetching"):
            yield Label(id="file", markup=False)
            yield ProgressBar(total=1.0)
        yield Static(id="numbers")
        yield Static(id="sentence")

    def show_progress(self, what: str, share: float) -> None:
        """So much of it is done."""
        self.add_class("-busy")
        self.query_one("#what", Label).update(what)
        self.query_one("#progress ProgressBar", ProgressBar).update(progress=share)

    def end_progress(self) -> None:
        """It is done."""
        self.remove_class("-busy")

    def show_fetched(self, what: str, share: float) -> None:
        """So much of a download is here."""
        self.add_class("-fetching")
        self.query_one("#file", Label).update(what)
        self.query_one("#fetching ProgressBar", ProgressBar).update(progress=share)

    def end_fetching(self) -> None:
        """It is here, paused, or failed."""
        self.remove_class("-fetching")

    def show_numbers(self, words: list[str]) -> None:
        """As many as fit."""
        self._words = words
        words = [*words[:2], *([self._requests] if self._requests else []), *words[2:]]
        self.query_one("#numbers", Static).update(Content(fitted(words, self.size.width - MARGIN)), layout=False)

    def show_requests(self, words: str) -> None:
        """What editors have asked for, among the numbers."""
        if words != self._requests:
            self._requests = words
            self.show_numbers(self._words)

    def say(self, sentence: str) -> None:
        """A sentence that stays, or "" for none."""
        label = self.query_one("#sentence", Static)
        if sentence == self._sentence:
            return
        self._sentence = sentence
        label.update(Content(sentence))
        label.display = bool(sentence)

    def on_resize(self) -> None:
        """Another width has room for other numbers."""
        self.show_numbers(self._words)
