"""Turns of sequences that cannot share a pass. Knows sequences and times."""

from __future__ import annotations

import math
from collections.abc import Sequence as List

from runtime.engine.sequence import Sequence

MAX_LEAD = 1.0  # seconds that short sequences may run first before they share the time with long ones


class Rotation:
    """Selects the next sequence. A sequence keeps its turn for a while, because switching takes time. Short ones, such
    as completions, have priority.
    """

    def __init__(self) -> None:
        self._current: Sequence | None = None
        self._seconds = 0.0  # duration of its turn so far
        self._lead = 0.0  # seconds that short sequences ran while long ones waited, less those of long ones since

    def next(self, sequences: List[Sequence], turn_seconds: float) -> Sequence:
        """Return the sequence whose turn it is. `sequences` are ordered by waiting time, longest first; a turn lasts
        `turn_seconds`.
        """
        best = min(sequences, key=lambda each: each.ask.is_short == (self._lead > MAX_LEAD))
        current = self._current
        if current is None or current not in sequences or self._seconds >= turn_seconds:
            return best
        is_outranked = turn_seconds < math.inf and best.ask.is_short != current.ask.is_short
        return best if is_outranked else current

    def record(self, sequence: Sequence, sequences: List[Sequence], seconds: float) -> None:
        """Record that `sequence` had a pass of this duration while `sequences` were active."""
        self._seconds = seconds + (self._seconds if sequence is self._current else 0.0)
        self._current = sequence
        if all(each.ask.is_short for each in sequences):
            self._lead = 0.0
        else:
            self._lead = max(0.0, self._lead + (seconds if sequence.ask.is_short else -seconds))
