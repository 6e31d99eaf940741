"""Chooses the sequences that decode in the next pass and the prompts that it reads. All scheduling is done here.

Knows sequences, the cost of passes and the size of the cache; runs no pass and chooses no draft.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from collections.abc import Sequence as List

from runtime.core.backend import TargetBackend
from runtime.core.image_runs import past_images
from runtime.core.limits import Admission, Limited, Limits, Queued
from runtime.engine.order import MAX_LEAD, Alternation, PromptOrder, Rotation
from runtime.engine.sequence import Batch, PromptPiece, Sequence
from runtime.speculative.decoder import Decoder
from runtime.speculative.target import Sharing

TURN = 10  # length of a turn, in multiples of the time of switching between sequences


class Scheduler:
    """The running sequences of one decoder, the one without a pass for longest first, and those that wait to run."""

    def __init__(self, decoder: Decoder, backend: TargetBackend, limits: Limits) -> None:
        self._decoder, self._backend, self._limits = decoder, backend, limits
        self._prompts, self._alternation = PromptOrder(backend.n_ctx), Alternation()
        self._rotation, self._admission = Rotation(), Admission(limits)
        self.sequences: list[Sequence] = []
        self.waiting: list[Sequence] = []
        self._rereading: Sequence | None = None  # sequence that reads evicted tokens again before any other continues
        self._suspects: list[Sequence] = []  # sequences of a pass that failed, which continue one after the other

    @property
    def all(self) -> list[Sequence]:
        """Its sequences: those that wait, then those that run."""
        return [*self.waiting, *self.sequences]

    @property
    def fetching(self) -> list[Sequence]:
        """Sequences that wait only until what is stored of their prompts has been read from disk."""
        return [each for each in self.waiting if each.stored is not None]

    def check(self, new: Limited, preparing: List[Queued], is_gone: Callable[[int], bool]) -> None:
        """Raise BusyError if there is no room for a new sequence; those that are being prepared count."""
        waiting = *preparing, *(each for each in self.waiting if each.stored is None)
        running = *self.sequences, *self.fetching
        queued, active = ([each for each in some if not is_gone(each.number)] for some in (waiting, running))
        self._limits.check(new, queued, active, self.holds_one)

    def add(self, sequence: Sequence) -> None:
        """Add a sequence, which waits until it is admitted."""
        self.waiting.append(sequence)

    def admitted(self) -> list[Sequence]:
        """Return the waiting sequences that may run now, by `run`: those that are fetching, and new ones."""
        fetching, new = self.fetching, [each for each in self.waiting if each.stored is None]
        return fetching + (new and self._admission.admit(new, [*self.sequences, *fetching], self.holds_one))

    def run(self, sequence: Sequence) -> None:
        """Let a waiting sequence run."""
        if len(self.sequences) == 1:  # passes of a lone sequence are not recorded
            self._rotation, self._alternation = Rotation(), Alternation()
        self.waiting.remove(sequence)
        self.sequences.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Remove a sequence, running or waiting, if it is there."""
        self.waiting = [each for each in self.waiting if each is not sequence]
        self.sequences = [each for each in self.sequences if each is not sequence]

    def finished(self, is_cancelled: Callable[[int], bool]) -> list[Sequence]:
        """Return the sequences that were cancelled or are complete, each with its finish reason."""
        for each in self.all:
            if is_cancelled(each.number):
                each.finish_reason = "cancelled"
            elif each.left == 0 and each.finish_reason is None and each in self.sequences and not self.n_unread(each):
                each.finish_reason = "length"
        return [each for each in self.all if each.finish_reason is not None]

    def plan(self) -> Batch:
        """Return the batch of the next pass; empty if there is no sequence."""
        if not self.sequences:
            return Batch()
        if len(self.sequences) == 1:
            return self._single(self.sequences[0])
        if suspects := [each for each in self._suspects if each in self.sequences]:
            return self._single(suspects[0])
        if self._rereading in self.sequences:
            return self._single(self._rereading)
        if self.holds_one:
            return self._single(self._rotation.next(self.sequences, self.turn_seconds))
        return self._shared(self._rotation.adapters.members(self.sequences))

    def _shared(self, sequences: List[Sequence]) -> Batch:
        """Return a batch of several sequences, which have the same adapters. Where a pass cannot both decode and read
        prompts, those that can decode do so between two pieces of prompts.
        """
        unread = {each: self.n_unread(each) for each in sequences}
        ready = [each for each, n in unread.items() if not n]
        reading = self._prompts.first({each: n for each, n in unread.items() if n})
        if reading and (sharing := self._mixed(sequences)):
            batch = self._with_prompts(ready, reading, unread, sharing)
            if batch.n_rows:
                return batch
        if ready and (not reading or self._alternation.decodes(ready)):
            return self._decoded(ready)
        return self._single(reading[0])

    def record(self, batch: Batch, seconds: float) -> None:
        """Record a batch before its tokens are committed, and move its sequences behind all others.

        A sequence that reads evicted tokens again runs alone until it is further than before, because two sequences
        that evict each other would otherwise read forever.
        """
        done, n_rows, decoding = batch.sequences, batch.n_rows, [each for each, _ in batch.decoding]
        if len(done) == 1 and (decoding or batch.reading[0].end > done[0].n_read):
            self._suspects = [each for each in self._suspects if each not in done]
            self._rereading = None if self._rereading in done else self._rereading
        if n_rows:
            self._prompts.record(n_rows, self.sequences, seconds)
        for each, _, end in batch.reading:
            each.n_read = max(each.n_read, end)
        self.sequences = [each for each in self.sequences if each not in done] + done
        if len(self.sequences) == 1:
            return
        self._rotation.adapters.record(seconds)
        self._alternation.record(decoding, self.sequences, seconds, bool(n_rows))
        if self._sharing(done) is None and (decoding or self.holds_one):
            self._rotation.record(done[0], self.sequences, seconds)

    def isolate(self, batch: Batch) -> None:
        """Let the sequences of a failed pass be read again and continue one by one: the one at fault fails alone."""
        self._suspects = batch.sequences

    @property
    def holds_one(self) -> bool:
        """Whether only one sequence can be cached."""
        return self._backend.slots == 1

    def _sharing(self, sequences: List[Sequence]) -> Sharing | None:
        """Return the rules of passes that these sequences share; None if sequences take turns."""
        return None if self.holds_one else self._decoder.target.of(sequences[0].adapters).shared

    def _mixed(self, sequences: List[Sequence]) -> Sharing | None:
        """Return the rules of shared passes where those that read prompts may also decode: where all passes round
        alike, or nobody has a seed; else None.
        """
        sharing, is_exact = self._sharing(sequences), self._decoder.target.of(sequences[0].adapters).is_exact
        rounds_alike = sharing is not None and sharing.exact_rows == sys.maxsize and is_exact
        return sharing if rounds_alike or not any(each.needs_exact_widths for each in self.sequences) else None

    @property
    def turn_seconds(self) -> float:
        """Length of a sequence's turn, after which others have theirs within a second: infinite if only one can be
        cached.
        """
        n_others = max(1, len(self.sequences) - 1)
        return math.inf if self.holds_one else min(TURN * self._decoder.drafting.switch_seconds, MAX_LEAD / n_others)

    def n_unread(self, sequence: Sequence) -> int:
        """Return the number of tokens to read before its next token can be decoded.

        Where rounding depends on the width of a pass, evicted tokens must be read again in the same pieces as before.
        """
        target = self._decoder.target.of(sequence.adapters)
        if not sequence.is_reading and (target.is_exact or not target.is_exact_only):
            return 0
        return max(0, sequence.buffer.n - 1 - self._n_cached(sequence))

    def n_cached(self, sequence: Sequence) -> int:
        """Return the number of cached prompt tokens."""
        return min(self._n_cached(sequence), sequence.buffer.n_prompt - 1)

    def _n_cached(self, sequence: Sequence) -> int:
        return self._decoder.target.n_cached(sequence.tokens, sequence.needs_exact_widths, sequence.adapters)

    def _single(self, sequence: Sequence) -> Batch:
        """Return a batch of one sequence: the next piece of its prompt, or its next tokens. The last piece is part of
        the pass of the first token, if the text does not depend on how a prompt is split.
        """
        n_unread = self.n_unread(sequence)
        if not n_unread:
            return Batch([(sequence, 0)])
        total = sequence.buffer.n - 1
        start = total - n_unread
        if start < sequence.n_read:
            self._rereading = sequence
        end = self._prompts.end(sequence, start, len(self.sequences) == 1)
        if end == total and self._decoder.target.of(sequence.adapters).is_exact and sequence.left != 0:
            return Batch([(sequence, n_unread)])
        return Batch(reading=[PromptPiece(sequence, start, end)])

    def _decoded(self, ready: list[Sequence]) -> Batch:
        """Return a batch that decodes those of the `ready` sequences whose turn it is."""
        if (sharing := self._sharing(ready)) is None:
            candidates = self._alternation.unserved(ready) or ready
            return Batch([(self._rotation.next(candidates, self.turn_seconds), 0)])
        # Where passes round differently, the first pass of a sequence is its own, because its cached tokens may be of
        # another, which can drop them
        if sharing.exact_rows < sys.maxsize and (new := next((each for each in ready if each.is_reading), None)):
            return Batch([(new, 0)])
        return Batch([(each, 0) for each in self._together(ready, sharing)])

    def _together(self, decoding: List[Sequence], sharing: Sharing) -> list[Sequence]:
        """Return those that decode in one pass, within the limits of exact rounding and of the cache."""
        found = list(decoding)
        if len(found) > (most := sharing.exact_rows):
            is_exact = found[0].needs_exact_widths
            found = found[:most] if is_exact else [each for each in found if not each.needs_exact_widths]
        while len(found) > 1 and not sharing.passes.fits([each.buffer.n for each in found]):
            found = found[:-1]
        return found

    def _with_prompts(
        self, ready: List[Sequence], reading: List[Sequence], unread: Mapping[Sequence, int], sharing: Sharing
    ) -> Batch:
        """Return a batch that also reads prompts, at most as many tokens as the `ready` sequences can wait for; none
        where no prompt fits. Occasionally it only reads, so that prefill and decoding can be timed separately.
        """
        apart = bool(ready) and self._decoder.controller.passes.joint.is_blurred
        found = [] if apart else self._together(ready, sharing)
        batch, lengths = Batch([(each, 0) for each in found]), [each.buffer.n for each in found]
        room = self._room_to_read(found or ready)
        for each in reading:
            start = each.buffer.n - 1 - unread[each]
            n = past_images(each.tokens[:-1], start + min(unread[each], room)) - start
            if n <= 0 or not sharing.passes.fits([*lengths, start + n + 1]):
                continue
            if n == unread[each] and each.left != 0 and not apart:
                batch.decoding.append((each, n))
            else:
                batch.reading.append(PromptPiece(each, start, start + n))
            lengths.append(start + n + 1)
            room -= n
        return batch

    def _room_to_read(self, decoding: List[Sequence]) -> int:
        """Return the number of prompt tokens that a pass may read. Those that have generated a single token wait once
        for prompts that arrived at the same time, because prompts are read fastest together.
        """
        generating = [each for each in decoding if each.buffer.n_reply > 1]
        most = self._prompts.room
        if not generating:
            return most
        return self._decoder.controller.passes.joint.n_readable(len(generating), generating[0].buffer.n, most)
