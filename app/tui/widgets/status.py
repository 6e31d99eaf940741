"""The line above the prompt: what is being loaded, read or fetched, the numbers of the reply, and the reason when
speculation is off.

Shows words and shares that it is given; knows neither engine nor chat.
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
        self._numbers: list[str] = []
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

    def show_progress(self, what: str, share: float | None = None) -> None:
        """Shows what is done, in place of the numbers, and how much of it, where that is known."""
        self.add_class("-busy")
        self.query_one("#what", Label).update(what)
        bar = self.query_one("#progress ProgressBar", ProgressBar)
        bar.display = share is not None
        if share is not None:
            bar.update(progress=share)

    def end_progress(self) -> None:
        """Shows the numbers again."""
        self.remove_class("-busy")

    def show_download(self, what: str, share: float) -> None:
        """Shows how much of a download is here."""
        self.add_class("-fetching")
        self.query_one("#file", Label).update(what)
        self.query_one("#fetching ProgressBar", ProgressBar).update(progress=share)

    def end_download(self) -> None:
        """Shows no download any more."""
        self.remove_class("-fetching")

    def show_numbers(self, numbers: list[str]) -> None:
        """Shows as many as fit, the first ones first."""
        self._numbers = numbers
        requests = [self._requests] if self._requests else []
        line = fitted([*numbers[:2], *requests, *numbers[2:]], self.size.width - MARGIN)
        self.query_one("#numbers", Static).update(Content(line), layout=False)

    def show_requests(self, summary: str) -> None:
        """Shows what editors have asked for, among the numbers."""
        if summary != self._requests:
            self._requests = summary
            self.show_numbers(self._numbers)

    def show_sentence(self, sentence: str) -> None:
        """Shows a sentence that stays, or none for ""."""
        label = self.query_one("#sentence", Static)
        if sentence == self._sentence:
            return
        self._sentence = sentence
        label.update(Content(sentence))
        label.display = bool(sentence)

    def on_resize(self) -> None:
        """Another width has room for other numbers."""
        self.show_numbers(self._numbers)
