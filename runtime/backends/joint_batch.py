"""A batch with rows of several conversations, in arrays that are allocated once. Knows seats; decodes nothing."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import llama_cpp.llama_cpp as lib
import numpy as np
from numpy.typing import NDArray

from runtime.backends.pointers import INT8_P, INT32_P
from runtime.backends.seats import Seat
from runtime.core.draft import PassInput


class JointBatch:
    """Up to `n` rows of `n_seats` conversations."""

    def __init__(self, n: int, n_seats: int) -> None:
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
        for seat, (context, draft, _) in zip(seats, asked, strict=True):
            start, n, end = seat.n_held, len(context), len(context) + len(draft.tokens)
            seat.tokens[start:n], seat.tokens[n:end] = context[start:], draft.tokens
            rows = slice(at, at := at + end - start)
            self._tokens[rows], self._positions[rows] = seat.tokens[start:end], np.arange(start, end)
            self._seats[rows] = numbers + 4 * seat.sequence
            self._flags[rows] = 0
            self._flags[at - 1 - len(draft.tokens) : at] = 1
        self._batch.n_tokens = at
        return self._batch
