"""Chooses the sequences that decode in the next pass and the prompts that it reads. All scheduling is done here.

Knows sequences, the cost of passes and the size of the cache; runs no pass and chooses no draft.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from runtime.core.backend import TargetBackend
from runtime.core.limits import UNLIMITED, Limited, Limits
from runtime.engine.pieces import piece_end
from runtime.engine.rotation import Rotation
from runtime.engine.sequence import Sequence
from runtime.speculative.decoder import Decoder
from runtime.speculative.step import Widths

TURN = 10  # length of a turn, in multiples of the time of switching between sequences
MAX_READ = 384  # most prompt tokens of one pass
OLDEST_FIRST_EVERY = 4  # one in this many passes with prompts begins with the oldest, others with the least unread


@dataclass(slots=True)
class Batch:
    """The work of one pass."""

    decoding: list[tuple[Sequence, int]] = field(default_factory=list)  # (sequence, prompt tokens that it also reads)
    reading: list[tuple[Sequence, int]] = field(default_factory=list)  # (sequence, position in its prompt to read to)

    @property
    def sequences(self) -> list[Sequence]:
        """Its sequences: first those that decode, then those that only read."""
        return [each for each, _ in (*self.decoding, *self.reading)]

    @property
    def reads(self) -> bool:
        """Whether it reads prompt tokens."""
        return bool(self.reading) or any(n_unread for _, n_unread in self.decoding)


class Scheduler:
    """The running sequences of one decoder, the one without a pass for longest first, and those that wait to run."""

    def __init__(self, decoder: Decoder, backend: TargetBackend, limits: Limits = UNLIMITED) -> None:
        self._decoder, self._backend, self._rotation, self._limits = decoder, backend, Rotation(), limits
        self.sequences: list[Sequence] = []
        self.waiting: list[Sequence] = []
        self._has_read = False  # whether the last pass read a prompt
        self._n_reads = 0  # passes that read prompts
        self._rereading: Sequence | None = None  # sequence that reads evicted tokens again before any other continues

    def check(self, new: Limited, is_gone: Callable[[int], bool]) -> None:
        """Check that there is room for a new sequence; waiting ones that `is_gone` do not count. Raises BusyError."""
        waiting = [each for each in self.waiting if not is_gone(each.number)]
        self._limits.check(new, waiting, self.sequences, self.holds_one)

    def add(self, sequence: Sequence) -> None:
        """Add a sequence, which waits until it is admitted."""
        self.waiting.append(sequence)

    def admit(self) -> list[Sequence]:
        """Let the sequences run that may run now, and return them."""
        admitted = self._limits.admitted(self.waiting, self.sequences, self.holds_one) if self.waiting else []
        self.waiting = [each for each in self.waiting if each not in admitted]
        self.sequences += admitted
        return admitted

    def remove(self, sequence: Sequence) -> None:
        """Remove a sequence, running or waiting."""
        (self.waiting if sequence in self.waiting else self.sequences).remove(sequence)

    def plan(self) -> Batch:
        """Return the batch of the next pass; empty if there is no sequence."""
        if not self.sequences:
            return Batch()
        if len(self.sequences) == 1:
            return self._single(self.sequences[0])
        if self._rereading is not None and self._rereading in self.sequences:
            return self._single(self._rereading)
        if not self._shares:
            return self._single(self._rotation.next(self.sequences, self.turn_seconds))
        return self._shared()

    def record(self, batch: Batch, seconds: float) -> None:
        """Record the time of a batch, and move its sequences behind all others."""
        done = batch.sequences
        self._record_progress(batch)
        self._has_read = batch.reads
        self._n_reads += batch.reads
        self.sequences = [each for each in self.sequences if each not in done] + [
            each for each in done if each in self.sequences
        ]
        if len(self.sequences) > 1 and not self._shares:
            self._rotation.record(done[0], self.sequences, seconds)

    def _record_progress(self, batch: Batch) -> None:
        """Record the prefill progress of a batch. A sequence that reads evicted tokens again runs alone until it is
        further than before, because two sequences that evict each other would otherwise read forever.
        """
        for each, end in batch.reading:
            if each is self._rereading and end > each.n_read:
                self._rereading = None
            each.n_read = max(each.n_read, end)
        if any(each is self._rereading for each, _ in batch.decoding):
            self._rereading = None

    @property
    def _shares(self) -> bool:
        shared = self._decoder.target.shared
        return shared is not None and shared.passes.slots > 1

    @property
    def holds_one(self) -> bool:
        """Whether only one sequence can be cached."""
        return self._backend.slots == 1

    @property
    def turn_seconds(self) -> float:
        """Length of a sequence's turn: 0 if sequences share passes, infinite if only one can be cached."""
        if self.holds_one:
            return math.inf
        return 0.0 if self._shares else TURN * self._decoder.preparation.switch_seconds

    def n_unread(self, sequence: Sequence) -> int:
        """Return the number of tokens to read before its next token can be decoded.

        Where rounding depends on the width of a pass, evicted tokens must be read again in the same pieces as before.
        """
        if not sequence.is_reading and (not self._decoder.target.is_exact_only or sequence.request.is_exact):
            return 0
        return max(0, sequence.buffer.n - 1 - self._backend.n_cached(sequence.tokens, sequence.needs_exact_widths))

    def n_cached(self, sequence: Sequence) -> int:
        """Return the number of cached prompt tokens."""
        return min(self._backend.n_cached(sequence.tokens, sequence.needs_exact_widths), sequence.buffer.n_prompt - 1)

    def _single(self, sequence: Sequence) -> Batch:
        """Return a batch of one sequence: the next piece of its prompt, or its next tokens. The last piece is part of
        the pass of the first token, if the text does not depend on how a prompt is split.
        """
        n_unread = self.n_unread(sequence)
        if not n_unread:
            return Batch([(sequence, 0)])
        total = sequence.buffer.n - 1
        if total - n_unread < sequence.n_read:
            self._rereading = sequence
        end = self._piece_end(sequence, total - n_unread)
        if end == total and sequence.request.is_exact and sequence.left != 0:
            return Batch([(sequence, n_unread)])
        return Batch(reading=[(sequence, end)])

    def _piece_end(self, sequence: Sequence, n_cached: int) -> int:
        n_prompt, total = sequence.buffer.n_prompt, sequence.buffer.n - 1
        return piece_end(n_cached, n_prompt, total, sequence.request.exactness, self._backend.n_ctx)

    def _shared(self) -> Batch:
        """Return a batch of several sequences. Passes that read prompts alternate with passes that only decode, if a
        sequence is well under way.
        """
        unread = {each: self.n_unread(each) for each in self.sequences}
        decoding = [each for each, n in unread.items() if not n and self._may_share_pass(each)]
        reading = self._in_order({each: n for each, n in unread.items() if each not in decoding})
        is_decode_turn = self._has_read and any(map(is_well_under_way, decoding))
        if decoding and (is_decode_turn or not reading):
            return self._decode_batch(decoding)
        if self._exact_rows < sys.maxsize or not reading[0].request.is_exact:
            return self._single(reading[0])
        return self._with_prompts(decoding, reading, unread) or self._single(reading[0])

    def _may_share_pass(self, sequence: Sequence) -> bool:
        """Return whether a sequence may decode together with others. Where width changes rounding, its first pass
        is its own: until then its cached tokens may belong to another sequence, which can drop them.
        """
        return self._exact_rows == sys.maxsize or not sequence.is_reading

    def _in_order(self, unread: dict[Sequence, int]) -> list[Sequence]:
        """Return the sequences to read, by unread tokens, fewest first; in every fourth pass, oldest first."""
        if (self._n_reads + 1) % OLDEST_FIRST_EVERY == 0:
            return sorted(unread, key=lambda each: each.number)
        return sorted(unread, key=unread.__getitem__)

    def _decode_batch(self, decoding: list[Sequence]) -> Batch:
        """Return a batch of sequences that decode together, within the limits of exact rounding and of the cache."""
        found = self._within_exact_rows(decoding)
        while len(found) > 1 and not self._fits([each.buffer.n for each in found]):
            found.pop()
        return Batch([(each, 0) for each in found])

    def _within_exact_rows(self, found: list[Sequence]) -> list[Sequence]:
        most = self._exact_rows
        are_exact = [each.drafting.widths is Widths.EXACT for each in found]
        if len(found) <= most or not any(are_exact):
            return found
        if are_exact[0]:
            return found[: max(1, most)]
        return [each for each, is_exact in zip(found, are_exact, strict=True) if not is_exact]

    @property
    def _exact_rows(self) -> int:
        """Number of rows up to which a shared pass rounds as plain decode does."""
        return self._decoder.target.shared.exact_rows if self._decoder.target.shared else 1

    def _fits(self, lengths: list[int]) -> bool:
        shared = self._decoder.target.shared
        return shared is not None and shared.passes.fits(lengths)

    def _with_prompts(
        self, decoding: list[Sequence], reading: list[Sequence], unread: dict[Sequence, int]
    ) -> Batch | None:
        """Return a batch that also reads prompts, at most as many tokens as the decoding sequences can wait for; None
        if no prompt fits. Occasionally it only reads, so that prefill and decoding can be timed separately.
        """
        joint = self._decoder.controller.passes.joint
        apart = bool(decoding) and joint.is_blurred
        batch = self._decode_batch(decoding) if decoding and not apart else Batch()
        room, lengths = self._room_to_read(decoding), [each.buffer.n for each in batch.sequences]
        for each in reading:
            n, start = min(unread[each], room), each.buffer.n - 1 - unread[each]
            if not n or not self._fits([*lengths, start + n + 1]):
                continue
            if n == unread[each] and each.left != 0 and not apart:
                batch.decoding.append((each, n))
            else:
                batch.reading.append((each, start + n))
            lengths.append(start + n + 1)
            room -= n
        return batch if batch.reads else None

    def _room_to_read(self, decoding: list[Sequence]) -> int:
        """Return the number of prompt tokens that a pass may read."""
        generating = [each for each in decoding if is_well_under_way(each)]
        if not generating:
            return MAX_READ
        return self._decoder.controller.passes.joint.n_readable(len(generating), generating[0].buffer.n, MAX_READ)


def is_well_under_way(sequence: Sequence) -> bool:
    """Return whether a sequence has generated tokens, except one in its prompt's pass while it was alone. Until then it
    waits for prompts that arrived at the same time, because prompts are read fastest together.
    """
    return sequence.buffer.n_reply > sequence.n_early
