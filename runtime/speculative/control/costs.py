"""Cost model of passes: seconds by width (rows decoded in one pass) and context length.

Pure arithmetic on times measured elsewhere; knows no backend. Times drift on a shared or throttling machine, so every
pass updates the table. Changes are clamped so that a single spike has little effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from itertools import pairwise

from runtime.speculative.control.tuning import TUNING

FAMILIAR = round(1 / TUNING.time_weight)  # number of measurements from which a new one has the usual weight
# Limits of restored state: times relative to a plain pass at context length 0, and number of entries
LEAST_RATIO, MOST_RATIO, MOST_KEPT = 0.25, 1e3, 4096


class PassCosts:
    """T(n, c): seconds of a pass over n rows at context length c.

    Linear between measured widths and lengths; never less for a longer context.
    """

    def __init__(self) -> None:
        self._shared, self._n_guessed = TUNING.shared_drift, 1  # measurements that an estimate counts as
        self._table: dict[int, dict[int, float]] = {}  # bucket -> width -> seconds, before the drift
        self._drift = 1.0  # factor on all times since they were measured
        self._is_scaled = False  # whether some widths were rescaled because their number of threads changed
        self._after = 0.0  # extra seconds of a plain pass after a wider one, before the drift
        # (bucket, width) -> number of measurements, for entries that early measurements change faster than usual
        self._n_seen: dict[tuple[int, int], int] = {}

    def copy(self) -> PassCosts:
        """Return an independent copy."""
        return deepcopy(self)

    def of_batch(self) -> PassCosts:
        """Return a copy for passes that several sequences share."""
        costs = self.copy()
        costs._shared, costs._n_seen, costs._n_guessed = TUNING.shared_drift_together, {}, FAMILIAR  # noqa: SLF001 (of this class)
        return costs

    def set(self, width: int, seconds: float, n_context: int = 0) -> None:
        """Set a careful measurement as it is."""
        self._table.setdefault(n_context // TUNING.context_bucket, {})[width] = seconds / self._drift

    @property
    def after(self) -> float:
        """Extra seconds of a plain pass after a wider one, because llama.cpp rebuilds its graph."""
        return self._drift * self._after

    def set_after(self, seconds: float) -> None:
        """Set a careful measurement of `after` as it is."""
        self._after = max(0.0, seconds) / self._drift

    def observe_after(self, n_context: int, seconds: float) -> None:
        """Update `after` with a plain pass that followed a wider one."""
        plain = self.seconds(1, n_context)
        longer = min(max(0.0, seconds - plain), plain)
        self._after += TUNING.time_weight * (longer / self._drift - self._after)

    def doubt(self) -> None:
        """Count each entry as one measurement: the machine may have been busy at load, and times in use differ."""
        self._n_seen = {(bucket, width): 1 for bucket, row in self._table.items() for width in row}

    def observe(self, width: int, n_context: int, seconds: float, is_rare: bool = False) -> float:
        """Update the table with a pass. All other entries drift with it to a small extent.

        If it `is_rare`, its first measurements are attributed to this width alone, not to the machine. Returns the
        relative change of all other entries.
        """
        key = n_context // TUNING.context_bucket, width
        if is_rare:
            self._n_seen.setdefault(key, 0)
        row = self._row(n_context)
        if width not in row:
            expected = self.seconds(width, n_context) or seconds
            row[width], self._n_seen[key] = min(seconds, expected) / self._drift, 0
        weight, share = self._weights(key)
        change = weight * (min(max(seconds / (row[width] * self._drift), 0.5), 2) - 1)
        self.drift(1 + share * change)
        row[width] *= (1 + change) / (1 + share * change)
        return share * change

    def state(self) -> list[tuple[int, int, float]]:
        """Return what passes in use taught, for the next start: context bucket, width, and time relative to a plain
        pass at context length 0. Empty if the number of threads changed since the start.
        """
        plain, seen = self._plain, [key for key, n in self._n_seen.items() if n > 1 and not self._is_scaled]
        return [(bucket, width, self._table[bucket][width] / plain) for bucket, width in seen if plain]

    def restore(self, state: Iterable[tuple[int, int, float]]) -> None:
        """Restore the result of `state`, scaled by the current time of a plain pass.

        Raises ValueError or TypeError when it has another form.
        """
        found = [(int(bucket), int(width), float(ratio)) for bucket, width, ratio in state]
        if len(found) > MOST_KEPT or not all(b >= 0 and w > 0 and LEAST_RATIO < r < MOST_RATIO for b, w, r in found):
            raise ValueError("times that are impossible")
        plain = self._plain
        for bucket, width, ratio in sorted(found) if plain else []:
            if (bucket, width) != (0, 1):
                row = self._row(bucket * TUNING.context_bucket)
                row[width] = clamped(ratio * plain, row.get(width, ratio * plain))
                self._n_seen[bucket, width] = TUNING.kept_times

    @property
    def _plain(self) -> float:
        """Seconds of a plain pass at context length 0, before the drift; 0 if not measured."""
        return self._table.get(0, {}).get(1, 0.0)

    def drift(self, factor: float) -> None:
        """Scale the times of all passes."""
        self._drift *= factor

    def _row(self, n_context: int) -> dict[int, float]:
        """Return the table row of a context length; a new one starts with interpolated times."""
        bucket = n_context // TUNING.context_bucket
        if bucket not in self._table:
            self._table[bucket] = self._guess(n_context)
            self._n_seen |= {(bucket, width): self._n_guessed for width in self._table[bucket]}
        return self._table[bucket]

    def _weights(self, key: tuple[int, int]) -> tuple[float, float]:
        """Return the weight of a new measurement, and the fraction of its change that is attributed to the machine.
        The fraction is 0 while an entry has few measurements, because one of them may be a spike.
        """
        if key not in self._n_seen:
            return TUNING.time_weight, self._shared
        self._n_seen[key] += 1
        fresh = 1 / (1 + self._n_seen[key])
        return (fresh, 0.0) if fresh > TUNING.time_weight else (TUNING.time_weight, self._shared)

    def scale(self, widths: Callable[[int], bool], factor: float) -> None:
        """Scale the times of passes of these widths."""
        self._is_scaled = True
        for row in self._table.values():
            for width in filter(widths, row):
                row[width] *= factor

    def seconds(self, width: int, n_context: int) -> float:
        """Return the estimated seconds of a pass; 0 before any measurement."""
        return self.up_to(width, n_context)[-1]

    def up_to(self, width: int, n_context: int) -> list[float]:
        """Return [width] seconds of passes over 1, 2, ... rows; the last slope extrapolates beyond measured widths."""
        row = self._table.get(n_context // TUNING.context_bucket) or self._guess(n_context)
        drift = self._drift
        try:
            return [drift * row[w] for w in range(1, width + 1)]
        except KeyError:  # not all were measured
            return [drift * seconds for seconds in interpolated(sorted(row.items()), width)]

    def widths(self, n_context: int) -> dict[int, float]:
        """Return width -> seconds at this context length."""
        return {width: self._drift * seconds for width, seconds in self._guess(n_context).items()}

    def _guess(self, n_context: int) -> dict[int, float]:
        """Return width -> seconds at this context length, before the drift; linear between measured lengths."""
        bucket = n_context // TUNING.context_bucket
        below = max((known for known in self._table if known <= bucket), default=None)
        above = min((known for known in self._table if known >= bucket), default=None)
        if below is None or above is None or below == above:
            nearest = below if above is None else above
            return {} if nearest is None else dict(self._table[nearest])
        low, high, share = self._table[below], self._table[above], (bucket - below) / (above - below)
        return {width: low[width] + share * max(0.0, high[width] - low[width]) for width in low.keys() & high.keys()}


class PlainPasses:
    """Schedules runs of plain passes among passes with drafts, and tracks which of them are representative."""

    def __init__(self) -> None:
        self._n_steps, self._since_run, self._n_in_row = 0, 0, 0

    def is_needed(self, gain: float) -> bool:
        """Return whether the next step must be plain. `gain` is the speed with drafts relative to plain decode."""
        wanted = max(TUNING.least_plain_interval, TUNING.plain_run / TUNING.plain_share * (gain - 1))
        limit = max(TUNING.first_plain_run, self._n_steps // 2)
        return self._since_run >= min(wanted, TUNING.most_plain_interval, limit)

    def note(self, is_plain: bool) -> None:
        """Record the end of a step."""
        self._n_steps += 1
        self._n_in_row = self._n_in_row + 1 if is_plain else 0
        self._since_run = 0 if self._n_in_row >= TUNING.plain_run else self._since_run + 1

    def note_row(self, n: int) -> None:
        """Record the end of `n` plain steps."""
        self._n_steps, self._n_in_row, self._since_run = self._n_steps + n, self._n_in_row + n, 0

    @property
    def is_steady(self) -> bool:
        """Whether the last step took the time that it would take in plain decode."""
        return self._n_in_row >= TUNING.steady_passes


class Overhead:
    """Seconds per token outside models."""

    def __init__(self) -> None:
        self.seconds, self._n_plain = 0.0, 0  # steps without a draft

    def learn(self, seconds: float, is_wide: bool) -> None:
        """Update with a step's seconds. Steps with a draft can only lower the estimate once a plain step was measured,
        because their extra time is a cost of drafting.
        """
        self._n_plain += not is_wide
        if not is_wide:
            self.seconds += max(TUNING.time_weight, 1 / (1 + self._n_plain)) * (seconds - self.seconds)
        elif not self._n_plain or seconds < self.seconds:
            self.seconds += TUNING.time_weight * (seconds - self.seconds)


def clamped(seconds: float, measured: float) -> float:
    """Return `seconds` clamped to within a factor of `most_learned_change` of the careful measurement."""
    return min(max(seconds, measured / TUNING.most_learned_change), measured * TUNING.most_learned_change)


def interpolated(points: Sequence[tuple[int, float]], n: int) -> list[float]:
    """Return the seconds of passes over 1 to `n` rows, piecewise linear through (width, seconds) points in order.

    Beyond the last point, the last slope continues if it is positive. Zeros without a point.
    """
    if len(points) < 2:
        only, seconds = points[0] if points else (1, 0.0)
        slope = seconds * TUNING.default_slope / (1 + TUNING.default_slope * (only - 1))
        return [seconds + slope * (width - only) for width in range(1, n + 1)]
    found = [points[0][1]] * (points[0][0] - 1)
    for (w0, t0), (w1, t1) in pairwise(points):
        found += [t0 + (t1 - t0) / (w1 - w0) * i for i in range(w1 - w0)]
    slope = max(0.0, t1 - t0) / (w1 - w0)
    return (found + [t1 + slope * i for i in range(n - w1 + 1)])[:n]
