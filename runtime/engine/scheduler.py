"""Chooses the sequences that decode in the next pass and the prompts that it reads. All scheduling is done here.

Knows sequences, the cost of passes and the size of the cache; runs no pass and chooses no draft.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from runtime.core.backend import TargetBackend
from runtime.core.draft import PassInput
from runtime.core.limits import Limited, Limits
from runtime.engine.rotation import Rotation
from runtime.engine.sequence import Sequence
from runtime.loading.exactness import Exactness
from runtime.speculative.decoder import Decoder
from runtime.speculative.step import StepInput
from runtime.speculative.target import Sharing

TURN = 10  # length of a turn, in multiples of the time of switching between sequences
PIECE = 256  # tokens prefilled between two checks for cancellation
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
    def inputs(self) -> list[StepInput]:
        """The inputs of those that decode."""
        return [each.input(n_unread) for each, n_unread in self.decoding]

    @property
    def prompts(self) -> list[PassInput]:
        """The prompts of those that only read, up to where they are read."""
        return [PassInput(each.tokens[:end], exact=each.needs_exact_widths) for each, end in self.reading]

    @property
    def reads(self) -> bool:
        """Whether it reads prompt tokens."""
        return bool(self.reading) or any(n_unread for _, n_unread in self.decoding)


class Scheduler:
    """The running sequences of one decoder, the one without a pass for longest first, and those that wait to run."""

    def __init__(self, decoder: Decoder, backend: TargetBackend, exactness: Exactness, limits: Limits) -> None:
        self._decoder, self._backend, self._rotation, self._limits = decoder, backend, Rotation(), limits
        self._exactness, self._is_exact = exactness, exactness.is_exact
        self.sequences: list[Sequence] = []
        self.waiting: list[Sequence] = []
        self._has_read = False  # whether the last pass read a prompt
        self._n_reads = 0  # passes that read prompts
        self._rereading: Sequence | None = None  # sequence that reads evicted tokens again before any other continues
        self._early: Sequence | None = None  # sequence whose first token is of its prompt's pass, when it was alone

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
        if (sharing := self._sharing) is None:
            return self._single(self._rotation.next(self.sequences, self.turn_seconds))
        return self._shared(sharing)

    def record(self, batch: Batch, seconds: float) -> None:
        """Record a batch before its tokens are committed, and move its sequences behind all others.

        A sequence that reads evicted tokens again runs alone until it is further than before, because two sequences
        that evict each other would otherwise read forever.
        """
        done = batch.sequences
        if done == [self._rereading] and (batch.decoding or batch.reading[0][1] > done[0].n_read):
            self._rereading = None
        for each, end in batch.reading:
            each.n_read = max(each.n_read, end)
        if len(self.sequences) == 1 and batch.decoding and batch.reads and not done[0].buffer.n_reply:
            self._early = done[0]
        self._has_read = batch.reads
        self._n_reads += batch.reads
        self.sequences = [each for each in self.sequences if each not in done] + done
        if len(self.sequences) > 1 and self._sharing is None:
            self._rotation.record(done[0], self.sequences, seconds)

    @property
    def holds_one(self) -> bool:
        """Whether only one sequence can be cached."""
        return self._backend.slots == 1

    @property
    def _sharing(self) -> Sharing | None:
        """The rules of shared passes; None if sequences take turns."""
        return None if self.holds_one else self._decoder.target.shared

    @property
    def turn_seconds(self) -> float:
        """Length of a sequence's turn: infinite if only one can be cached."""
        return math.inf if self.holds_one else TURN * self._decoder.drafting.switch_seconds

    def n_unread(self, sequence: Sequence) -> int:
        """Return the number of tokens to read before its next token can be decoded.

        Where rounding depends on the width of a pass, evicted tokens must be read again in the same pieces as before.
        """
        if not sequence.is_reading and (not self._decoder.target.is_exact_only or self._is_exact):
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
        if end == total and self._is_exact and sequence.left != 0:
            return Batch([(sequence, n_unread)])
        return Batch(reading=[(sequence, end)])

    def _piece_end(self, sequence: Sequence, n_cached: int) -> int:
        """Return the end of the next piece to read. It does not depend on the tokens that drafts left in the cache.

        Reply tokens after the prompt are read as they were generated: in passes no wider than the exact ones.
        """
        end = sequence.buffer.n_prompt - 1
        if n_cached < end:
            return min((n_cached // PIECE + 1) * PIECE, end)
        while end <= n_cached:
            end += PIECE if self._is_exact else self._exactness.rows_at(end + 1, self._backend.n_ctx)
        return min(end, sequence.buffer.n - 1)

    def _shared(self, sharing: Sharing) -> Batch:
        """Return a batch of several sequences. Where passes that read prompts cannot decode as well, they alternate
        with passes that only decode, if a sequence is well under way.
        """
        unread = {each: self.n_unread(each) for each in self.sequences}
        are_alike = sharing.exact_rows == sys.maxsize  # whether all passes round alike
        # Else the first pass of a sequence is its own, because its cached tokens may be of another, which can drop them
        decoding = [each for each, n in unread.items() if not n and (are_alike or not each.is_reading)]
        reading = self._in_order({each: n for each, n in unread.items() if each not in decoding})
        is_decode_turn = self._has_read and any(map(self._is_well_under_way, decoding))
        is_mixed = are_alike and self._is_exact  # whether passes that read prompts also decode
        if decoding and (not reading or (is_decode_turn and not is_mixed)):
            return Batch([(each, 0) for each in self._together(decoding, sharing)])
        if not is_mixed:
            return self._single(reading[0])
        return self._with_prompts(decoding, reading, unread, sharing) or self._single(reading[0])

    def _in_order(self, unread: dict[Sequence, int]) -> list[Sequence]:
        """Return the sequences to read, by unread tokens, fewest first; in every fourth pass, oldest first."""
        if (self._n_reads + 1) % OLDEST_FIRST_EVERY == 0:
            return sorted(unread, key=lambda each: each.number)
        return sorted(unread, key=unread.__getitem__)

    def _together(self, decoding: list[Sequence], sharing: Sharing) -> list[Sequence]:
        """Return those that decode in one pass, within the limits of exact rounding and of the cache."""
        found = decoding
        if len(found) > (most := sharing.exact_rows):
            is_exact = found[0].needs_exact_widths
            found = found[:most] if is_exact else [each for each in found if not each.needs_exact_widths]
        while len(found) > 1 and not sharing.passes.fits([each.buffer.n for each in found]):
            found = found[:-1]
        return found

    def _with_prompts(
        self, decoding: list[Sequence], reading: list[Sequence], unread: dict[Sequence, int], sharing: Sharing
    ) -> Batch | None:
        """Return a batch that also reads prompts, at most as many tokens as the decoding sequences can wait for; None
        if no prompt fits. Occasionally it only reads, so that prefill and decoding can be timed separately.
        """
        joint = self._decoder.controller.passes.joint
        apart = bool(decoding) and joint.is_blurred
        found = [] if apart else self._together(decoding, sharing)
        batch, lengths = Batch([(each, 0) for each in found]), [each.buffer.n for each in found]
        room = self._room_to_read(found or decoding)
        for each in reading:
            n, start = min(unread[each], room), each.buffer.n - 1 - unread[each]
            if not n or not sharing.passes.fits([*lengths, start + n + 1]):
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
        generating = [each for each in decoding if self._is_well_under_way(each)]
        if not generating:
            return MAX_READ
        return self._decoder.controller.passes.joint.n_readable(len(generating), generating[0].buffer.n, MAX_READ)

    def _is_well_under_way(self, sequence: Sequence) -> bool:
        """Return whether a sequence has generated tokens, except one in its prompt's pass while it was alone. Until
        then it waits for prompts that arrived at the same time, because prompts are read fastest together.
        """
        return sequence.buffer.n_reply > (sequence is self._early)
