"""How far a prompt has been read, in words, also between two reports of the engine, which come by the piece.

Knows numbers and times; knows no engine and no widgets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SHORT = 1.5  # seconds, below which the time left is not told
MOMENT = 5.0  # seconds of reading, below which nobody has to know of it before
LONG = 500  # tokens of a prompt that may take longer than a moment if no speed is known


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a model will have to read before it answers."""

    name: str
    n_tokens: int
    token_seconds: float  # 0.0: not known

    @property
    def seconds(self) -> float:
        """How long that takes."""
        return self.n_tokens * self.token_seconds

    @property
    def is_long(self) -> bool:
        """Whether it takes more than a moment, or may do so."""
        return self.seconds > MOMENT if self.token_seconds else self.n_tokens > LONG

    @property
    def text(self) -> str:
        """What it reads, in words."""
        time = f", which takes {about(self.seconds)}" if self.token_seconds else ""
        return f"{self.name} reads {self.n_tokens:,} tokens{time}"


def told_before(forecasts: Sequence[Forecast]) -> str:
    """Return what models will have to read one after the other, where that takes more than a moment; else ""."""
    long = [each for each in forecasts if each.is_long]
    if not long:
        return ""
    unknown = "" if all(each.token_seconds for each in long) else " How long that takes was not measured yet."
    answers = "it answers" if len(long) == 1 else "they answer"
    return f"Before {answers}, {' and then '.join(each.text for each in long)}.{unknown}"


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
