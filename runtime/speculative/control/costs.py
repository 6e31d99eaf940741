"""What a pass costs here: seconds by width (rows decoded at once) and context length.

Pure arithmetic over times that others take; knows no backend. Times drift on a shared or throttling machine, so every
pass that is made anyway refreshes the table, clamped so that a single spike does little.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy

import numpy as np

from runtime.speculative.control.tuning import TUNING

FAMILIAR = round(1 / TUNING.time_weight)  # times seen, from which on one more has its usual weight
LEAST_RATIO, MOST_RATIO, MOST_KEPT = 0.25, 1e3, 4096  # of plain passes at the beginning, and how many: else not learned


class PassCosts:
    """T(n, c): seconds of a pass over n rows at context length c.

    Between measured widths and lengths linear, never less for a longer context.
    """

    def __init__(self) -> None:
        self._shared, self._n_guessed = TUNING.shared_drift, 1  # times that a guess counts
        self._table: dict[int, dict[int, float]] = {}  # bucket -> width -> seconds, but for the drift
        self._drift = 1.0  # of all since then
        self._is_scaled = False  # did passes of some widths become others than those that were measured?
        self._after = 0.0  # seconds that a plain pass takes longer after a wider one, but for the drift
        # (bucket, width) -> times seen, where few times say more than what was known before
        self._n_seen: dict[tuple[int, int], int] = {}

    def copy(self) -> PassCosts:
        """A table that begins alike and learns for itself."""
        return deepcopy(self)

    def of_company(self) -> PassCosts:
        """The same for passes that several replies share."""
        costs = self.copy()
        costs._shared, costs._n_seen, costs._n_guessed = TUNING.shared_drift_together, {}, FAMILIAR  # noqa: SLF001 (of this class)
        return costs

    def set(self, width: int, seconds: float, n_context: int = 0) -> None:
        """Takes a careful measurement as it is."""
        self._table.setdefault(n_context // TUNING.context_bucket, {})[width] = seconds / self._drift

    @property
    def after(self) -> float:
        """Seconds that a plain pass takes longer after a wider one: llama.cpp builds its graph anew then."""
        return self._drift * self._after

    def set_after(self, seconds: float) -> None:
        """Takes a careful measurement of `after` as it is."""
        self._after = max(0.0, seconds) / self._drift

    def observe_after(self, n_context: int, seconds: float) -> None:
        """Refreshes `after` with a plain pass that came after a wider one."""
        plain = self.seconds(1, n_context)
        longer = min(max(0.0, seconds - plain), plain)
        self._after += TUNING.time_weight * (longer / self._drift - self._after)

    def doubt(self) -> None:
        """What is known counts like one pass of each width: at load the machine may have been busy, and passes in use
        take other times.
        """
        self._n_seen = {(bucket, width): 1 for bucket, row in self._table.items() for width in row}

    def observe(
        self, width: int, n_context: int, seconds: float, weight: float = TUNING.time_weight, is_rare: bool = False
    ) -> float:
        """Refreshes the table with a pass that was made anyway; what is known of all others drifts along a little,
        unless it `is_rare`: then the first times tell of passes like it and not of the machine.

        Returns by what share.
        """
        key = n_context // TUNING.context_bucket, width
        if is_rare:
            self._n_seen.setdefault(key, 0)
        row = self._row(n_context)
        if width not in row:
            expected = self.seconds(width, n_context) or seconds
            row[width], self._n_seen[key] = min(seconds, expected) / self._drift, 0
        weight, share = self._weights(key, weight)
        change = weight * (min(max(seconds / (row[width] * self._drift), 0.5), 2) - 1)
        self.drift(1 + share * change)
        row[width] *= (1 + change) / (1 + share * change)
        return share * change

    def state(self) -> list[tuple[int, int, float]]:
        """What passes in use have told, for the next start: context bucket, width, and times what a plain pass takes at
        the beginning. Nothing where other threads made them than those that a start begins with.
        """
        plain, seen = self._plain, [key for key, n in self._n_seen.items() if n > 1 and not self._is_scaled]
        return [(bucket, width, self._table[bucket][width] / plain) for bucket, width in seen if plain]

    def restore(self, state: Iterable[tuple[int, int, float]]) -> None:
        """Takes up what `state` gave, beside what a plain pass takes now.

        Raises ValueError or TypeError when it is not of this form.
        """
        found = [(int(bucket), int(width), float(ratio)) for bucket, width, ratio in state]
        if len(found) > MOST_KEPT or not all(b >= 0 and w > 0 and LEAST_RATIO < r < MOST_RATIO for b, w, r in found):
            raise ValueError("times that cannot be")
        plain = self._plain
        for bucket, width, ratio in sorted(found) if plain else []:
            if (bucket, width) != (0, 1):
                row = self._row(bucket * TUNING.context_bucket)
                measured = row.get(width) if bucket == 0 else None
                row[width] = ratio * plain if measured is None else clamped(ratio * plain, measured)
                self._n_seen[bucket, width] = TUNING.kept_times

    @property
    def _plain(self) -> float:
        """What a plain pass takes at the beginning, but for the drift; 0 where that is not known."""
        return self._table.get(0, {}).get(1, 0.0)

    def drift(self, factor: float) -> None:
        """All passes take so much longer from now on."""
        self._drift *= factor

    def _row(self, n_context: int) -> dict[int, float]:
        """Where passes at that length are noted; a new one begins as a guess from the others."""
        bucket = n_context // TUNING.context_bucket
        if bucket not in self._table:
            self._table[bucket] = self._guess(n_context)
            self._n_seen |= {(bucket, width): self._n_guessed for width in self._table[bucket]}
        return self._table[bucket]

    def _weights(self, key: tuple[int, int], weight: float) -> tuple[float, float]:
        """The weight of one more time, and the machine's share of the change: none while a guess changes, as one time
        may be a spike.
        """
        if key not in self._n_seen:
            return weight, self._shared
        self._n_seen[key] += 1
        fresh = 1 / (1 + self._n_seen[key])
        return (fresh, 0.0) if fresh > weight else (weight, self._shared)

    def scale(self, widths: Callable[[int], bool], factor: float) -> None:
        """Passes of these widths take so much longer from now on."""
        self._is_scaled = True
        for row in self._table.values():
            for width in filter(widths, row):
                row[width] *= factor

    def seconds(self, width: int, n_context: int) -> float:
        """The expected time; 0 before any measurement."""
        return self.up_to(width, n_context)[-1]

    def up_to(self, width: int, n_context: int) -> list[float]:
        """[width] seconds of passes over 1, 2, ... rows; beyond the measured widths on the last slope."""
        row = self._table.get(n_context // TUNING.context_bucket) or self._guess(n_context)
        drift = self._drift
        if len(row) >= width and all(w in row for w in range(1, width + 1)):
            return [drift * row[w] for w in range(1, width + 1)]
        return [drift * seconds for seconds in interpolated(sorted(row.items()), width)]

    def widths(self, n_context: int) -> dict[int, float]:
        """Width -> seconds at that context length."""
        return {width: self._drift * seconds for width, seconds in self._guess(n_context).items()}

    def _guess(self, n_context: int) -> dict[int, float]:
        """Width -> seconds at that context length before the drift is applied, between measured lengths linear."""
        bucket = n_context // TUNING.context_bucket
        below = max((known for known in self._table if known <= bucket), default=None)
        above = min((known for known in self._table if known >= bucket), default=None)
        if below is None or above is None or below == above:
            nearest = below if above is None else above
            return {} if nearest is None else dict(self._table[nearest])
        low, high, share = self._table[below], self._table[above], (bucket - below) / (above - below)
        return {width: low[width] + share * max(0.0, high[width] - low[width]) for width in low.keys() & high.keys()}


class PlainPasses:
    """When plain passes are made amid drafts, by steps since the last run of them, and which of them tell."""

    def __init__(self) -> None:
        self._since_run, self._n_in_row = 0, 0
        self.is_due = False  # is this step to be plain?

    def begin(self, n_steps: int, gain: float, may_be: bool) -> None:
        """A step begins after `n_steps`; drafts make `gain` times plain decode. `may_be`: can it be plain for that?"""
        self.is_due = may_be and self._since_run >= self._every(n_steps, gain)

    @staticmethod
    def _every(n_steps: int, gain: float) -> float:
        """Steps between two runs."""
        wanted = max(TUNING.least_plain_interval, TUNING.plain_run / TUNING.plain_share * (gain - 1))
        return min(wanted, TUNING.most_plain_interval, max(TUNING.first_plain_run, n_steps // 2))

    def note(self, is_plain: bool) -> None:
        """A step has ended."""
        self._n_in_row = self._n_in_row + 1 if is_plain else 0
        self._since_run = 0 if self._n_in_row >= TUNING.plain_run else self._since_run + 1

    def note_row(self, n: int) -> None:
        """So many plain steps have ended."""
        self._n_in_row, self._since_run = self._n_in_row + n, 0

    @property
    def is_steady(self) -> bool:
        """Was the last step as it would be in plain decode?"""
        return self._n_in_row >= TUNING.steady_passes


class Overhead:
    """Seconds per token outside models."""

    def __init__(self) -> None:
        self.seconds, self._n_plain = 0.0, 0  # steps without a draft

    def learn(self, seconds: float, is_wide: bool) -> None:
        """Takes in a step's; what steps with a draft take more is lost by drafting."""
        self._n_plain += not is_wide
        if not is_wide:
            self.seconds += max(TUNING.time_weight, 1 / (1 + self._n_plain)) * (seconds - self.seconds)
        elif not self._n_plain or seconds < self.seconds:
            self.seconds += TUNING.time_weight * (seconds - self.seconds)


def clamped(seconds: float, measured: float) -> float:
    """The seconds, as far as they can be believed beside what was measured carefully."""
    return min(max(seconds, measured / TUNING.most_learned_change), measured * TUNING.most_learned_change)


def interpolated(points: Sequence[tuple[int, float]], n: int) -> list[float]:
    """Return the seconds of passes over 1 to `n` rows: piecewise linear through (width, seconds) points in order;
    beyond the last on its slope, if that rises. Zeros without a point.
    """
    if len(points) < 2:
        only, seconds = points[0] if points else (1, 0.0)
        slope = seconds * TUNING.default_slope / (1 + TUNING.default_slope * (only - 1))
        return [seconds + slope * (width - only) for width in range(1, n + 1)]
    known, seconds_of = zip(*points, strict=True)
    (w0, t0), (w1, t1) = points[-2:]
    slope = max(0.0, t1 - t0) / (w1 - w0)
    inside: list[float] = np.interp(range(1, min(n, w1) + 1), known, seconds_of).tolist()
    return inside + [t1 + slope * (width - w1) for width in range(w1 + 1, n + 1)]
