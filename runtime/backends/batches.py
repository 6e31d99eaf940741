"""Batches of one conversation's rows, and of several conversations' rows.

Each is a window onto arrays that are allocated once, so that Python's part of a step takes microseconds. Knows seats
and the library's structure; decodes nothing.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import llama_cpp.llama_cpp as lib
import numpy as np
from numpy.typing import NDArray

from runtime.backends.library import FLOAT_P, INT8_P, INT32_P
from runtime.backends.seats import Seat
from runtime.backends.shown_states import Rows
from runtime.core.draft import PassInput, Tokens
from runtime.core.image_runs import position


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


class JointBatch:
    """Up to `n` rows of `n_seats` conversations."""

    def __init__(self, n: int, n_seats: int, is_spatial: bool = False) -> None:
        self._is_spatial = is_spatial  # whether images may take fewer positions than tokens
        self._numbers = (ctypes.c_int32 * n_seats)(*range(n_seats))
        self._tokens: NDArray[np.int32] = np.empty(n, dtype=np.int32)
        self._positions: NDArray[np.int32] = np.empty(n, dtype=np.int32)
        self._flags: NDArray[np.int8] = np.empty(n, dtype=np.int8)
        self._seats: NDArray[np.uintp] = np.empty(n, dtype=np.uintp)  # address of each row's sequence id
        self._counts: NDArray[np.int32] = np.ones(n, dtype=np.int32)
        self._batch = lib.llama_batch()
        self._batch.embd = None
        self._batch.token = ctypes.cast(self._tokens.ctypes.data, INT32_P)
        self._batch.pos = ctypes.cast(self._positions.ctypes.data, INT32_P)
        self._batch.n_seq_id = ctypes.cast(self._counts.ctypes.data, INT32_P)
        self._batch.seq_id = ctypes.cast(self._seats.ctypes.data, ctypes.POINTER(INT32_P))
        self._batch.logits = ctypes.cast(self._flags.ctypes.data, INT8_P)

    def fill(self, seats: Sequence[Seat], asked: Sequence[PassInput]) -> lib.llama_batch:
        """Return a batch of each seat's missing tokens and draft, with logits for the last token and the draft."""
        at, numbers = 0, ctypes.addressof(self._numbers)
        for seat, (context, draft, *_) in zip(seats, asked, strict=True):
            start, n, end = seat.n_held, len(context), len(context) + len(draft.tokens)
            seat.tokens[start:n], seat.tokens[n:end] = context[start:], draft.tokens
            rows = slice(at, at := at + end - start)
            first = position(seat.tokens, start) if self._is_spatial else start
            self._tokens[rows], self._positions[rows] = seat.tokens[start:end], np.arange(first, first + end - start)
            self._seats[rows] = numbers + 4 * seat.sequence
            self._flags[rows] = 0
            self._flags[at - 1 - len(draft.tokens) : at] = 1
        self._batch.n_tokens = at
        return self._batch
