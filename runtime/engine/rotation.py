"""Turns of sequences: between decoding and reading prompts, and of sequences that cannot share a pass. Knows sequences
and times.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from collections.abc import Sequence as List

from runtime.engine.sequence import Sequence

MAX_LEAD = 1.0  # seconds that short sequences may run first before they share the time with long ones
DECODE_SHARE = 0.25  # seconds of decoding for each second of reading, where a pass cannot do both


class Alternation:
    """Whether the next pass decodes or reads prompts, where it cannot do both. Between two pieces of prompts everyone
    decodes who can, and for longer where a piece took long.
    """

    def __init__(self) -> None:
        self._unserved = set[Sequence]()  # sequences without a pass since the last one that read
        self._owed = 0.0  # seconds of decoding before the next piece

    def unserved(self, ready: Iterable[Sequence]) -> list[Sequence]:
        """Return those of the sequences that can decode which must do so before another piece is read."""
        return [each for each in ready if each in self._unserved]

    def decodes(self, ready: Iterable[Sequence]) -> bool:
        """Return whether the next pass decodes, if it could also read."""
        return self._owed > 0 or bool(self.unserved(ready))

    def record(self, decoding: Iterable[Sequence], running: Iterable[Sequence], seconds: float, has_read: bool) -> None:
        """Record a pass that decoded some of the `running` sequences, and whether it read prompts."""
        if has_read:
            self._unserved, self._owed = set(running), DECODE_SHARE * seconds
        else:
            self._owed -= seconds
        self._unserved.difference_update(decoding)


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
