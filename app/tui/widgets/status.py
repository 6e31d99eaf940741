"""The line above the prompt: progress of loading, reading or fetching, the numbers of the reply, and the reason why
speculation is off. How far a prompt is read is estimated between two reports of the engine, which come by the piece.

Shows given words and shares; knows neither engine nor chat.
"""

from __future__ import annotations

import time

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widgets import Label, ProgressBar, Static

from app.tui.numbers import fitted

MARGIN = 2
TICK = 0.5  # seconds between two estimates of how far a prompt is read
SHORT = 1.5  # seconds, below which the time left is not told


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


class ReadingEstimate:
    """The tokens read so far and the seconds left, by the speed of this prompt, or at first of the prompt before."""

    def __init__(self) -> None:
        self._rate = 0.0  # tokens per second; 0: unknown
        self.begin(0.0)

    def expect(self, token_seconds: float) -> None:
        """Begin with the speed of another model, or with none if that is 0.0."""
        self._rate = 1 / token_seconds if token_seconds else 0.0

    def begin(self, now: float) -> None:
        """Begin another prompt."""
        self._n_read = self._total = 0  # as the engine reported; a total of 0 is unknown
        self._first: tuple[int, float] | None = None  # tokens and time of the first report
        self._reported_at = now

    def report(self, n_read: int, total: int, now: float) -> None:
        """Record a report of the engine."""
        self._n_read, self._total, self._reported_at = n_read, total, now
        if self._first is None:
            self._first = n_read, now
        elif n_read > self._first[0] and now > self._first[1]:
            self._rate = (n_read - self._first[0]) / (now - self._first[1])

    def n_read(self, now: float) -> int:
        """Return the estimated number of tokens read by now; all only when the engine has reported that."""
        if self._n_read >= self._total:
            return self._n_read
        return min(self._total - 1, round(self._n_read + self._rate * (now - self._reported_at)))

    def share(self, now: float) -> float:
        """Return the estimated share of the prompt that is read."""
        return self.n_read(now) / max(1, self._total)

    def text(self, now: float) -> str:
        """Return how far it is, in words."""
        if not self._total:
            return "Reading the prompt"
        left = (self._total - self.n_read(now)) / self._rate if self._rate else 0.0
        done = f", {self.n_read(now):,} done" if self.n_read(now) else ""
        return f"Reading {self._total:,} tokens{done}" + (f", {about(left)} left" if left > SHORT else "")


def about(seconds: float) -> str:
    """Return a time as people say it."""
    if seconds < 90:
        return f"about {seconds:.0f} s"
    return f"about {seconds / 60:.0f} minutes"
