"""A model library without models: the functions of llama.cpp that our backends call, over cells that are kept as its
own are, so that everything of ours that deals with a cache runs as it is.

Honest semantics: what a cell holds follows from the cells before it that its sequence has, a row is refused that does
not follow the last one of its sequence, and a pass is refused for which there are no cells.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import llama_cpp.llama_cpp as lib
import numpy as np
import pytest

from bench.instruments.toy import Clock
from runtime.core.draft import Logits

N_VOCAB, END = 8, 0
N_NOISES = 101  # rows of which one is added, by all that was said before
FAILED, NO_ROOM, STOPPED = -3, 1, 2  # what llama_decode returns
PASS_SECONDS, DRAFT_SECONDS, ROW_SECONDS = 1e-3, 1e-4, 1e-4


class ToyModel:
    """Logits for (token before, last token) from a table, and a part that all tokens before decide; `blur` mixes in
    another table, for a draft that is often wrong. Passes of more than `exact_rows` rows round otherwise.
    """

    def __init__(self, blur: float = 0.0, exact_rows: int = sys.maxsize) -> None:
        rng = np.random.default_rng(11)
        tables = rng.normal(size=(2, N_VOCAB, N_VOCAB, N_VOCAB)) * 2
        self._table = ((1 - blur) * tables[0] + blur * tables[1]).astype(np.float32)
        self._table[:, :, END] -= 1.5
        self._noise: Logits = (rng.normal(size=(N_NOISES, N_VOCAB)) * 1.2).astype(np.float32)
        self.exact_rows, self.seconds = exact_rows, DRAFT_SECONDS if blur else PASS_SECONDS

    @staticmethod
    def after(state: tuple[int, int, int], token: int, adapted: int = 0) -> tuple[int, int, int]:
        """What a cell of that token holds, after a cell of that state: a number for all tokens and the adapters with
        which they were read, and the last two.
        """
        return (state[0] * 31 + token + 1 + 7 * adapted) % 1_000_003, state[2], token

    def row(self, state: tuple[int, int, int], n_rows: int = 1) -> Logits:
        """Logits [n_vocab] after a cell of that state, in a pass of so many rows."""
        number, before, last = state
        rounded = self._noise[(number + 1) % N_NOISES] if n_rows > self.exact_rows else 0
        return self._table[before, last] + self._noise[number % N_NOISES] + rounded  # type: ignore[no-any-return]

    def logits(self, tokens: Iterable[int], adapted: int = 0) -> Logits:
        """Logits [n_vocab] after these tokens, alone, with adapters."""
        return self.row(reduce(lambda state, token: self.after(state, token, adapted), tokens, START))


START = 0, 0, 0


def adapted(lora: Iterable[tuple[int, float]] | None) -> int:
    """A number for adapters, of which there is one, and their scales."""
    return sum(round(100 * scale) for _, scale in lora or ())


class TickingClock(Clock):
    """Each look at it takes a microsecond, so that nothing is done in no time."""

    def __call__(self) -> float:
        self.now += 1e-6
        return self.now

    def replace(self, patch: pytest.MonkeyPatch, *names: str) -> None:
        """Take the place of clocks of `time`, but for threads of earlier tests: how often they look changes nothing."""
        others = {each.ident for each in threading.enumerate()} - {threading.get_ident()}
        for name in names:
            real: Callable[[], float] = getattr(time, name)
            patch.setattr(time, name, lambda real=real: real() if threading.get_ident() in others else self())


@dataclass(eq=False, slots=True)
class Cell:
    """A token's place in a cache, and the sequences that see it."""

    position: int
    token: int
    state: tuple[int, int, int]
    adapted: int = 0  # a number for the adapters with which it was computed
    sequences: set[int] = field(default_factory=set)


class ToyContext:
    """A cache of `n_cells`, and the logits of the last pass."""

    def __init__(self, model: ToyModel, n_cells: int, n_outputs: int) -> None:
        self.model, self.n_cells = model, n_cells
        self.cells = set[Cell]()
        self._seen = defaultdict[tuple[int, int], list[Cell]](list)  # by sequence and position
        self.logits = (ctypes.c_float * (n_outputs * N_VOCAB))()
        self.stop_text: Any = None  # not empty: passes are to stop
        self.adapted = 0  # a number for its adapters

    def decode(self, batch: Any) -> int:
        """A pass; returns llama_decode's code. One that is stopped leaves the first half of its rows."""
        n = batch.n_tokens
        if len(self.cells) + n > self.n_cells:
            return NO_ROOM
        is_stopped = bool(ctypes.string_at(self.stop_text))
        n_out = 0
        for i in range(n // 2 if is_stopped else n):
            sequences = [batch.seq_id[i][j] for j in range(batch.n_seq_id[i])]
            cell = self._add(batch.pos[i], batch.token[i], sequences)
            if batch.logits[i]:
                self.logits[n_out * N_VOCAB : (n_out + 1) * N_VOCAB] = self.model.row(cell.state, n).tolist()
                n_out += 1
        return STOPPED if is_stopped else 0

    def _add(self, position: int, token: int, sequences: list[int], adapted: int | None = None) -> Cell:
        """The next cell of these sequences, which all have the same one before it."""
        assert not any(self._seen[each, position] for each in sequences), f"position {position} is taken"
        state = START
        if position:
            before = {cell for each in sequences for cell in self._seen[each, position - 1]}
            assert len(before) == 1, f"position {position} follows {len(before)} cells"
            state = before.pop().state
        adapted = self.adapted if adapted is None else adapted
        cell = Cell(position, token, ToyModel.after(state, token, adapted), adapted)
        self.cells.add(cell)
        for each in sequences:
            self._join(cell, each)
        return cell

    def _join(self, cell: Cell, sequence: int) -> None:
        if sequence not in cell.sequences:
            cell.sequences.add(sequence)
            self._seen[sequence, cell.position].append(cell)

    def held(self, sequence: int) -> list[int]:
        """The tokens that a sequence sees, in order."""
        found = sorted((cell for cell in self.cells if sequence in cell.sequences), key=lambda cell: cell.position)
        assert [cell.position for cell in found] == list(range(len(found))), "positions are lacking"
        return [cell.token for cell in found]

    def _between(self, sequence: int, start: int, end: int) -> list[Cell]:
        last = self.n_cells if end < 0 else end
        found = (cell for cell in self.cells if sequence in cell.sequences and start <= cell.position < last)
        return sorted(found, key=lambda cell: cell.position)

    def remove(self, sequence: int, start: int, end: int) -> bool:
        """As llama_memory_seq_rm."""
        for cell in self._between(sequence, start, end):
            cell.sequences.remove(sequence)
            self._seen[sequence, cell.position].remove(cell)
            if not cell.sequences:
                self.cells.remove(cell)
        return True

    def copy(self, source: int, target: int, start: int, end: int) -> None:
        """As llama_memory_seq_cp."""
        for cell in self._between(source, start, end):
            self._join(cell, target)

    def clear(self, wipes: bool) -> None:
        """As llama_memory_clear."""
        self.cells.clear()
        self._seen.clear()

    def state_size(self, sequence: int) -> int:
        """Bytes of a copy of a sequence."""
        return 4 * len(self._between(sequence, 0, -1))

    def save(self, address: Any, size: int, sequence: int) -> int:
        """Writes a copy of a sequence: its tokens and the adapters of each, from which all follows."""
        tokens, cells = self.held(sequence), self._between(sequence, 0, -1)
        numbers = [token + N_VOCAB * cell.adapted for token, cell in zip(tokens, cells, strict=True)]
        ctypes.memmove(address, np.array(numbers, dtype=np.int32).tobytes(), size)
        return size

    def restore(self, address: Any, size: int, sequence: int) -> int:
        """Takes such a copy in place of what the sequence has."""
        self.remove(sequence, 0, -1)
        tokens = np.frombuffer(ctypes.string_at(address, size), dtype=np.int32).tolist()
        if len(self.cells) + len(tokens) > self.n_cells:
            return 0
        for position, number in enumerate(tokens):
            self._add(position, number % N_VOCAB, [sequence], number // N_VOCAB)
        return size


class ToyLibrary:
    """Its functions in the place of llama.cpp's, as long as `patch` lasts; passes take time of `clock` alone.

    `before_pass` is called with the context before each; what it returns is what the pass returns, unless that is 0.
    """

    def __init__(self, patch: pytest.MonkeyPatch, clock: Clock) -> None:
        self._clock = clock
        self.before_pass: Callable[[ToyContext], int] = lambda context: 0
        functions: dict[str, Callable[..., Any]] = {
            "llama_init_from_model": lambda model, params: ToyContext(model, params.n_ctx, params.n_outputs_max),
            "llama_get_memory": lambda context: context,
            "llama_n_ctx": lambda context: context.n_cells,
            "llama_set_abort_callback": self._set_stop,
            "llama_set_adapters_lora": self._set_adapters,
            "llama_set_n_threads": lambda context, one, many: None,
            "llama_decode": self._decode,
            "llama_get_logits": lambda context: ctypes.pointer(context.logits),
            "llama_memory_seq_rm": ToyContext.remove,
            "llama_memory_seq_cp": ToyContext.copy,
            "llama_memory_clear": ToyContext.clear,
            "llama_state_seq_get_size": ToyContext.state_size,
            "llama_state_seq_get_data": ToyContext.save,
            "llama_state_seq_set_data": ToyContext.restore,
            "llama_free": lambda context: context.clear(True),
        }
        for name, function in functions.items():
            patch.setattr(lib, name, function)

    @staticmethod
    def _set_stop(context: ToyContext, ask: Any, text: Any) -> None:
        context.stop_text = text

    @staticmethod
    def _set_adapters(context: ToyContext, handles: Any, n: int, scales: Any) -> int:
        context.adapted = sum(adapted([(0, scales[i])]) for i in range(n))
        return 0

    def _decode(self, context: ToyContext, batch: Any) -> int:
        self._clock.advance(context.model.seconds + ROW_SECONDS * batch.n_tokens)
        return self.before_pass(context) or context.decode(batch)
