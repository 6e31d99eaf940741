"""A seat: one conversation's slot in a context, what of it can be reused, and batches of its rows.

A batch is a window onto arrays that are allocated once, so that Python's part of a step takes microseconds. Knows
tokens and the library's structure; decodes nothing.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import llama_cpp.llama_cpp as lib
import numpy as np
from numpy.typing import NDArray

from runtime.backends.library import FLOAT_P, INT8_P, INT32_P
from runtime.backends.shown_states import Rows
from runtime.core.draft import Adapters, Tokens, common_prefix, usable
from runtime.core.image_runs import around, resumable


@dataclass(slots=True)
class Reuse:
    """Numbers of leading tokens of a cached conversation.

    `n_asked` were part of a request, later ones are drafts that may have been rejected. `n_exact` were computed as for
    a reply with a seed: read in whole tiles, and decoded in passes that round as plain decode does. `n_whole` were
    restored together, so the conversation cannot be truncated to fewer. `adapters` are those that all were read with.
    """

    n_asked: int = 0
    n_exact: int = 0
    n_whole: int = 0
    adapters: Adapters = ()

    def set(self, n_asked: int, n_exact: int, n_whole: int = 0) -> None:
        """Set all three."""
        self.n_asked, self.n_exact, self.n_whole = n_asked, n_exact, n_whole

    def cut(self, n: int) -> None:
        """Note that the conversation was truncated to `n` tokens."""
        self.n_exact, self.n_whole = min(self.n_exact, n), min(self.n_whole, n)

    def extend(self, start: int, n_asked: int, n: int, is_exact: bool) -> None:
        """Note that the tokens from `start` to `n` were decoded, `n_asked` of them for a request."""
        self.n_exact = n if is_exact and start <= self.n_exact else min(self.n_exact, start)
        self.n_asked = n_asked

    def shared(self, held: Tokens, context: Tokens, grain: int) -> int:
        """Return the number of leading tokens of `context[:-1]` that can be reused of the cached ones."""
        n = usable(common_prefix(held, context[:-1]), self.n_asked, self.n_exact, grain)
        if n and context[:n].min() < 0:  # images are among them
            n = resumable(context, n, grain > 1 and n < self.n_asked - 1)
            n, _ = around(held, n)
        return n if n >= self.n_whole else 0


class Seat:
    """A conversation's slot in a context: its sequence id, its cached tokens, and the cell of each token."""

    def __init__(self, sequence: int, n_ctx: int) -> None:
        self.sequence = sequence
        self.tokens: Tokens = np.zeros(n_ctx, dtype=np.int32)
        self.address: int = self.tokens.ctypes.data
        self.cells: NDArray[np.int32] = np.zeros(n_ctx, dtype=np.int32)
        self.n_held = 0
        self.used_at = 0  # value of `Seats.n_looked` when tokens were last decoded here
        self.reuse = Reuse()

    @property
    def asked(self) -> Tokens:
        """Its cached tokens without draft tokens."""
        return self.tokens[: min(self.n_held, self.reuse.n_asked)]

    def cut(self, n: int) -> None:
        """Note that the conversation was truncated to `n` tokens."""
        self.n_held = n
        self.reuse.cut(n)

    def clear(self) -> None:
        """Note that it is empty."""
        self.n_held = 0
        self.reuse.set(0, 0)


class RowBatch:
    """Up to `n` rows of one conversation at `n_positions` positions, of which up to `n_outputs` give logits."""

    def __init__(self, n_positions: int, n: int, n_outputs: int) -> None:
        self.positions: NDArray[np.int32] = np.arange(n_positions, dtype=np.int32)
        self._flags = np.concatenate([np.zeros(n, dtype=np.int8), np.ones(n_outputs, dtype=np.int8)])
        self._counts: NDArray[np.int32] = np.ones(n, dtype=np.int32)
        self._sequence = ctypes.c_int32(0)
        self._sequences = (INT32_P * n)(*[ctypes.pointer(self._sequence)] * n)
        self._addresses = self.positions.ctypes.data, self._flags.ctypes.data + n  # of the latter's ones
        self._kept: tuple[Tokens | None, Rows | None] = None, None  # alive while the batch points at them
        self.batch = lib.llama_batch()
        self.batch.n_seq_id = ctypes.cast(self._counts.ctypes.data, INT32_P)
        self.batch.seq_id = ctypes.cast(self._sequences, ctypes.POINTER(INT32_P))

    @property
    def n_rows(self) -> int:
        """Number of rows of the last batch."""
        return int(self.batch.n_tokens)

    def of_seat(self, seat: Seat, start: int, rows: int, n_outputs: int, position: int) -> lib.llama_batch:
        """Return a batch over a seat's tokens [start, start + rows), the first of which has this position, with logits
        for the last `n_outputs`.
        """
        self._place(seat.sequence, position, rows, n_outputs)
        self.batch.token = ctypes.cast(seat.address + 4 * start, INT32_P)
        return self.batch

    def of_states(
        self, sequence: int, position: int, tokens: Tokens | None, states: Rows | None, gives_logits: bool = True
    ) -> lib.llama_batch:
        """Return a batch of tokens, of states, or of both, with logits for all rows or for none."""
        tokens = None if tokens is None else np.ascontiguousarray(tokens)
        states = None if states is None else np.ascontiguousarray(states)
        self._kept = tokens, states
        n = max(0 if rows is None else len(rows) for rows in self._kept)
        self._place(sequence, position, n, n if gives_logits else 0)
        self.batch.token = None if tokens is None else ctypes.cast(tokens.ctypes.data, INT32_P)
        self.batch.embd = None if states is None else ctypes.cast(states.ctypes.data, FLOAT_P)
        return self.batch

    def _place(self, sequence: int, position: int, rows: int, n_outputs: int) -> None:
        """Set the sequence and the positions of rows, and which of them give logits."""
        positions, ones = self._addresses
        self._sequence.value, self.batch.n_tokens = sequence, rows
        self.batch.pos = ctypes.cast(positions + 4 * position, INT32_P)
        self.batch.logits = ctypes.cast(ones + n_outputs - rows, INT8_P)
