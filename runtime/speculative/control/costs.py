"""What a pass costs here: seconds by width (rows decoded at once) and context length, and which number of threads is
fastest.

Pure arithmetic over times that others take; knows no backend. Times drift on a shared or throttling machine, so every
pass that is made anyway refreshes the table, clamped so that a single spike does little.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from copy import deepcopy
from itertools import pairwise
from statistics import median

CONTEXT_BUCKET = 256  # tokens; in a small model, attention to 600 tokens takes as long as all else
LEARN = 0.1  # weight of a new time
SHARED = 0.3  # of a change in one width's time that is taken to be the machine's, and so all widths'
PATIENCE = 1.0  # seconds
DEFAULT_SLOPE = 0.5  # of T(1) per further row, until a second width was measured
ROUNDS = 5  # of measurements, where there is time
# Plain passes that are timed even where there is none: all else is compared with them, and one alone may have been held
# up
LEAST = 3
Pass = Callable[[int], object]  # decodes that many rows


class PassCosts:
    """T(n, c): seconds of a pass over n rows at context length c.

    Between measured widths and lengths linear, never less for a longer context.
    """

    def __init__(self) -> None:
        self._table: dict[int, dict[int, float]] = {}  # bucket -> width -> seconds, but for the drift
        self._drift = 1.0  # of all since then
        self._n_seen: dict[
            tuple[int, int], int
        ] = {}  # (bucket, width) -> times, where few say more than what was known before

    def copy(self) -> PassCosts:
        """A table that begins alike and learns for itself."""
        return deepcopy(self)

    def set(self, width: int, seconds: float, n_context: int = 0) -> None:
        """Takes a careful measurement as it is."""
        self._table.setdefault(n_context // CONTEXT_BUCKET, {})[width] = seconds / self._drift

    def doubt(self) -> None:
        """What is known counts like one pass of each width: at load the machine may have been busy, and passes in use
        take other times.
        """
        self._n_seen = {(bucket, width): 1 for bucket, row in self._table.items() for width in row}

    def observe(self, width: int, n_context: int, seconds: float, weight: float = LEARN) -> float:
        """Refreshes the table with a pass that was made anyway; what is known of all others drifts along a little.

        Returns by what share.
        """
        key = n_context // CONTEXT_BUCKET, width
        row = self._row(n_context)
        if width not in row:
            expected = self.seconds(width, n_context) or seconds
            row[width], self._n_seen[key] = min(seconds, expected) / self._drift, 0
        weight, share = self._weights(key, weight)
        change = weight * (min(max(seconds / (row[width] * self._drift), 0.5), 2) - 1)
        self.drift(1 + share * change)
        row[width] *= (1 + change) / (1 + share * change)
        return share * change

    def drift(self, factor: float) -> None:
        """All passes take so much longer from now on."""
        self._drift *= factor

    def _row(self, n_context: int) -> dict[int, float]:
        """Where passes at that length are noted; a new one begins as a guess from the others."""
        bucket = n_context // CONTEXT_BUCKET
        if bucket not in self._table:
            self._table[bucket] = self._guess(n_context)
            self._n_seen |= {(bucket, width): 1 for width in self._table[bucket]}
        return self._table[bucket]

    def _weights(self, key: tuple[int, int], weight: float) -> tuple[float, float]:
        """Of one more time, and the share of the change that is the machine's: none while it is a guess that changes,
        and one time may be a spike.
        """
        if key not in self._n_seen:
            return weight, SHARED
        self._n_seen[key] += 1
        fresh = 1 / (1 + self._n_seen[key])
        return (fresh, 0.0) if fresh > weight else (weight, SHARED)

    def scale(self, widths: Callable[[int], bool], factor: float) -> None:
        """Passes of these widths take so much longer from now on."""
        for row in self._table.values():
            for width in filter(widths, row):
                row[width] *= factor

    def seconds(self, width: int, n_context: int) -> float:
        """The expected time; 0 before any measurement."""
        return self.up_to(width, n_context)[-1]

    def up_to(self, width: int, n_context: int) -> list[float]:
        """[width] seconds of passes over 1, 2, ... rows; beyond the measured widths on the last slope."""
        row = self._table.get(n_context // CONTEXT_BUCKET) or self._guess(n_context)
        points = sorted(row.items()) if len(row) < width else []
        drift = self._drift
        return [
            drift * (row[w] if w in row else interpolate(points or sorted(row.items()), w) if row else 0.0)
            for w in range(1, width + 1)
        ]

    def widths(self, n_context: int) -> dict[int, float]:
        """Width -> seconds at that context length."""
        return {width: self._drift * seconds for width, seconds in self._guess(n_context).items()}

    def _guess(self, n_context: int) -> dict[int, float]:
        """The same but for the drift."""
        bucket = n_context // CONTEXT_BUCKET
        below = max((known for known in self._table if known <= bucket), default=None)
        above = min((known for known in self._table if known >= bucket), default=None)
        if below is None or above is None or below == above:
            nearest = below if above is None else above
            return {} if nearest is None else dict(self._table[nearest])
        low, high, share = self._table[below], self._table[above], (bucket - below) / (above - below)
        return {width: low[width] + share * max(0.0, high[width] - low[width]) for width in low.keys() & high.keys()}


def interpolate(points: list[tuple[int, float]], width: int) -> float:
    """Piecewise linear through (width, seconds) points in order; beyond the last on its slope, if that rises."""
    if len(points) == 1:
        (only, seconds) = points[0]
        return seconds * (1 + DEFAULT_SLOPE * (width - 1)) / (1 + DEFAULT_SLOPE * (only - 1))
    for (w0, t0), (w1, t1) in pairwise(points):
        if width < w1:
            return t0 + (t1 - t0) * (width - w0) / (w1 - w0)
        if w1 == points[-1][0]:
            return t1 + max(0.0, t1 - t0) * (width - w1) / (w1 - w0)
    raise AssertionError("no points")


def timed(run: Pass, width: int, times: int, deadline: float) -> float:
    """The median of up to `times` runs; only one when the deadline has passed."""
    taken: list[float] = []
    while len(taken) < times and (not taken or time.perf_counter() < deadline):
        began = time.perf_counter()
        run(width)
        taken.append(time.perf_counter() - began)
    return median(taken)


def fastest_threads(
    options: Iterable[int], set_threads: Callable[[int], None], run: Pass, width: int, deadline: float
) -> int:
    """The number of threads that makes a pass of that width fastest; fewer when it is within 3%.

    Begins with the most, so that a model too slow for all to be tried keeps those. All are tried for PATIENCE seconds
    beyond the deadline: on a busy machine the most are by far the slowest.
    """
    best, best_seconds = 1, float("inf")
    for n in sorted(options, reverse=True):
        if best_seconds < float("inf") and time.perf_counter() > deadline + PATIENCE:
            break
        set_threads(n)
        run(width)
        seconds = timed(run, width, 5, deadline)
        if seconds < 1.03 * best_seconds:
            best, best_seconds = n, min(seconds, best_seconds)
    return best


def measure(costs: PassCosts, run: Pass, max_width: int, deadline: float) -> None:
    """Times passes until the deadline: width 1 always, then 2, 4, 8, and others up to `max_width`.

    In rounds, so that a busy moment of the machine does not make one width dearer than the next. What lies between
    points is known best. Plain passes follow one another, so theirs comes after another like it; a draft's width is
    seldom that of the one before.
    """
    run(1)
    taken = {1: [timed(run, 1, 1, deadline) for _ in range(LEAST)]}
    first = [width for width in (1, 2, 4, 8, 3, 6, 12) if width <= max_width]
    for widths in (first, sorted(set(range(1, max_width + 1)).difference(first))):
        for width in ROUNDS * widths:
            if time.perf_counter() >= deadline:
                break
            if width == 1:
                run(1)
            taken.setdefault(width, []).append(timed(run, width, 1, deadline))
    for width, seconds in taken.items():
        costs.set(width, median(seconds))
