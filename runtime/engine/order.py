"""The order of sequences: which prompts the next pass reads and how far, when it decodes instead, and whose turn it is
where sequences cannot share a pass. Knows sequences and the times of passes; runs none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as List

from runtime.backends.held import TILE
from runtime.core.draft import Adapters
from runtime.core.image_runs import LONGER, PIECE, past_images
from runtime.engine.sequence import Sequence
from runtime.speculative.step import Widths

MAX_READ = 384  # most prompt tokens of one pass
FEW = 64  # rows below which a pass takes up to 1.5 times as long per row: kernels of attention work on 64 at a time
# Time that a pass which reads should take at most, half as much as where a sequence is alone. Longer pieces are faster,
# as each reads the whole cache: at 4,096 tokens of SmolLM2 a row of 64 takes 12.4 ms, one of 192 9.7, one of 256 8.8
MAX_SECONDS = 1.0
OLDEST_RATIO = 3.0  # seconds that others may be read for each second of the oldest prompt
MAX_AHEAD = 4.0  # seconds that others may be read before the oldest prompt has its turn
MAX_LEAD = 1.0  # seconds that short sequences may run first before they share the time with long ones
DECODE_SHARE = 0.25  # seconds of decoding for each second of reading, where a pass cannot do both


class PromptOrder:
    """The order in which prompts are read: those with the fewest unread tokens first, and the one that came first for
    at least a quarter of the time.
    """

    def __init__(self, n_ctx: int) -> None:
        self._n_ctx = n_ctx
        self._ahead = MAX_AHEAD  # seconds that others may still be read before the oldest prompt
        self._row_seconds = 0.0  # per prompt token in the last pass that read some; 0: unknown

    def first(self, unread: Mapping[Sequence, int]) -> list[Sequence]:
        """Return the sequences with `unread` tokens in the order in which they are read."""
        if self._ahead > 0:
            return sorted(unread, key=unread.__getitem__)
        oldest = min(each.number for each in unread)
        return sorted(unread, key=lambda each: (each.number != oldest, unread[each]))

    def record(self, n_rows: Mapping[Sequence, int], running: Iterable[Sequence], seconds: float) -> None:
        """Record a pass that read `n_rows` prompt tokens of some of the `running` sequences, before they are noted."""
        if not (n_all := sum(n_rows.values())):
            return
        if n_all >= TILE:
            self._row_seconds = seconds / n_all
        oldest = min((each for each in running if each in n_rows or each.is_reading), key=lambda each: each.number)
        own = seconds * n_rows.get(oldest, 0) / n_all
        self._ahead = max(0.0, min(self._ahead + OLDEST_RATIO * own - (seconds - own), MAX_AHEAD))

    @property
    def room(self) -> int:
        """Most prompt tokens of a pass that others may wait for, by the speed of reading."""
        return self._room(MAX_SECONDS, TILE)

    def _room(self, seconds: float, least: int) -> int:
        """Return the prompt tokens that are read in that time, `least` to MAX_READ."""
        return max(least, min(MAX_READ, int(seconds / self._row_seconds))) if self._row_seconds else PIECE

    def end(self, sequence: Sequence, n_cached: int, is_alone: bool) -> int:
        """Return the end of the next piece to read, of a sequence that runs alone or with others. It does not depend
        on the tokens that drafts left in the cache. A greedy reply that runs alone is repeatable, as those with a seed
        always are.

        Reply tokens after the prompt are read as they were generated: in passes no wider than the exact ones.
        """
        end, exactness = sequence.buffer.n_prompt - 1, sequence.binding.exactness
        if n_cached < end:
            is_greedy = sequence.binding.widths is Widths.PREFER_EXACT
            is_repeatable = sequence.needs_exact_widths or (is_alone and is_greedy)
            is_fixed = is_repeatable and not exactness.is_exact
            room = self._room(2 * MAX_SECONDS, FEW) if is_alone else self.room
            piece_end = self._fixed_end(sequence, n_cached, room) if is_fixed else self._free_end(n_cached, room)
            piece_end = past_images(sequence.tokens, min(piece_end, end))
            return piece_end if piece_end + (FEW if is_alone and not is_fixed else 0) < end else end
        while end <= n_cached:
            end += PIECE if exactness.is_exact else exactness.rows_at(end + 1, self._n_ctx)
        return min(end, sequence.buffer.n - 1)

    def _free_end(self, n_cached: int, room: int) -> int:
        """Return the end of a piece of about `room` tokens, at a multiple of the kernels' tile: of attention's, unless
        that is more.
        """
        tile = FEW if room >= FEW else TILE
        return max(n_cached // tile + 1, (n_cached + room) // tile) * tile

    def _fixed_end(self, sequence: Sequence, n_cached: int, room: int) -> int:
        """Return the end of a piece that rounds the same whenever it is read again: at the next multiple of PIECE, or
        at a later one within `room` tokens where such pieces are alike. The rest of the prompt after the last multiple
        is a piece of its own, and so are images and the text after them.
        """
        n, n_whole = n_cached // PIECE, (sequence.buffer.n_prompt - 1) // PIECE
        are_alike = sequence.binding.exactness.pieces and not sequence.drafting.reading.has_images
        n_pieces = min(room // PIECE, n_whole - n, LONGER) if are_alike and n_cached % PIECE == 0 else 1
        return (n + max(1, n_pieces)) * PIECE


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


class AdapterTurns:
    """Whose turn it is where sequences have different LoRA adapters and so cannot share a pass: all with the same ones
    together. A turn is a few passes, because the library plans its graph again at each change.
    """

    SECONDS, PASSES = 0.1, 16  # of a turn, at most one pass more

    def __init__(self) -> None:
        self._current: Adapters | None = None
        self._seconds, self._n_passes = 0.0, 0  # of the turn so far

    def members(self, sequences: List[Sequence]) -> List[Sequence]:
        """Return those of the sequences whose turn it is. They are ordered by waiting time, longest first."""
        is_over = self._seconds >= self.SECONDS or self._n_passes >= self.PASSES
        if is_over or all(each.adapters != self._current for each in sequences):
            self._current, self._seconds, self._n_passes = sequences[0].adapters, 0.0, 0
        return [each for each in sequences if each.adapters == self._current]

    def record(self, seconds: float) -> None:
        """Record a pass of this duration."""
        self._seconds, self._n_passes = self._seconds + seconds, self._n_passes + 1


class Rotation:
    """Selects the next sequence. A sequence keeps its turn for a while, because switching takes time. Short ones, such
    as completions, have priority.
    """

    def __init__(self) -> None:
        self.adapters = AdapterTurns()
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
