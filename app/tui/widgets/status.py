"""The line above the prompt: progress of loading, reading or fetching, the numbers of the reply, and the reason why
speculation is off.

Shows given words and shares; knows neither engine nor chat.
"""

from __future__ import annotations

import time

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widgets import Label, ProgressBar, Static

from app.tui.numbers import fitted
from app.tui.reading import ReadingEstimate

MARGIN = 2
TICK = 0.5  # seconds between two estimates of how far a prompt is read


class StatusLine(Vertical):
    """One line, and one more for warnings."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers: list[str] = []
        self._sentence = self._requests = ""
        self.reading = ReadingEstimate()

    def compose(self) -> ComposeResult:
        """Yield a progress bar for loading, one for downloads, the numbers, and a sentence."""
        with Horizontal(id="progress"):
            yield Label(id="what", markup=False)
            yield ProgressBar(total=1.0, show_eta=False)
        with Horizontal(id="fetching"):
            yield Label(id="file", markup=False)
            yield ProgressBar(total=1.0)
        yield Static(id="numbers", markup=False)
        yield Static(id="sentence", markup=False)

    def on_mount(self) -> None:
        """Prepare the timer of the estimate."""
        self._ticks = self.set_interval(TICK, self._show_reading, pause=True)

    def show_progress(self, what: str, share: float | None = None) -> None:
        """Show an activity in place of the numbers, with its finished share if that is known."""
        self.add_class("-busy")
        self.query_one("#what", Label).update(what)
        bar = self.query_one("#progress ProgressBar", ProgressBar)
        bar.display = share is not None
        if share is not None:
            bar.update(progress=share)

    def begin_reading(self) -> None:
        """Show that a prompt is read, from now on."""
        self.reading.begin(time.monotonic())
        self._ticks.resume()
        self._show_reading()

    def show_reading(self, n_read: int, total: int) -> None:
        """Show how many of the prompt's tokens are read. A total of 0 is not known."""
        self.reading.report(n_read, total, time.monotonic())
        self._show_reading()

    def _show_reading(self) -> None:
        now = time.monotonic()
        self.show_progress(self.reading.text(now), self.reading.share(now))

    def end_progress(self) -> None:
        """Show the numbers again."""
        self._ticks.pause()
        self.remove_class("-busy")

    def show_download(self, what: str, share: float) -> None:
        """Show the finished share of a download."""
        self.add_class("-fetching")
        self.query_one("#file", Label).update(what)
        self.query_one("#fetching ProgressBar", ProgressBar).update(progress=share)

    def end_download(self) -> None:
        """Hide the download."""
        self.remove_class("-fetching")

    def show_numbers(self, numbers: list[str]) -> None:
        """Show as many numbers as fit, from the first on."""
        self._numbers = numbers
        requests = [self._requests] if self._requests else []
        line = fitted([*numbers[:2], *requests, *numbers[2:]], self.size.width - MARGIN)
        self.query_one("#numbers", Static).update(line, layout=False)

    def show_requests(self, summary: str) -> None:
        """Show the number of requests from editors, among the numbers."""
        if summary != self._requests:
            self._requests = summary
            self.show_numbers(self._numbers)

    def show_sentence(self, sentence: str) -> None:
        """Show a sentence that stays, or none for ""."""
        label = self.query_one("#sentence", Static)
        if sentence == self._sentence:
            return
        self._sentence = sentence
        label.update(sentence)
        label.display = bool(sentence)

    def on_resize(self) -> None:
        """Fit the numbers to the new width."""
        self.show_numbers(self._numbers)
