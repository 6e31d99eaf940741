"""Runs the quantized target on texts that it generated: its probabilities at each position, and the states that a head
reads.

Knows backends; knows no torch. The result for a text does not depend on earlier texts.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from runtime.backends.contexts import open_backend
from runtime.backends.model import LlamaModel
from runtime.backends.shown_states import Rows
from runtime.core.draft import Draft, Logits, Tokens
from runtime.loading import layout
from runtime.models.heads import STATES
from runtime.training.samples import MAX_TEXT_TOKENS, N_LIKELY, Sample, Text

ROWS = 32  # rows of logits per pass: they take megabytes with a large vocabulary


class Teacher:
    """A target that exposes the inputs of `layers`, () for none, or instead what its output matrix reads.

    Raises ModelError; close it, or use it in `with`.
    """

    def __init__(self, target: Path, layers: tuple[int, ...], threads: int = 1, shows_outputs: bool = False) -> None:
        self._stack, self.layers, self.shows_outputs = ExitStack(), layers, shows_outputs
        try:
            self.model = LlamaModel(target, exact=layout.prefers_exact(target))
            self._stack.callback(self.model.close)
            n_ctx = MAX_TEXT_TOKENS + ROWS
            self.backend = open_backend(self.model, n_ctx, ROWS, STATES, is_frugal=self.model.is_recurrent)
            self._stack.callback(self.backend.close)
            self.backend.set_threads(threads, threads)
            n_values = (1 if shows_outputs else len(layers)) * self.model.n_embd
            self._states = np.zeros((n_ctx, n_values), dtype=np.float16)
            if shows_outputs:
                self.backend.shown.show_outputs(self._store_states)
            elif layers:
                self.backend.shown.show(layers, self._store_states)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Free the target."""
        self._stack.close()

    def _store_states(self, tokens: Tokens, start: int, states: Rows) -> None:
        self._states[start : len(tokens)] = states

    def read(self, text: Text) -> Sample:
        """Return the sample of the first MAX_TEXT_TOKENS tokens of a text whose reply begins before that."""
        tokens = np.array(text.tokens[:MAX_TEXT_TOKENS], dtype=np.int32)
        self._forget(int(tokens[0]))
        pieces = []
        if self.shows_outputs:  # known only in passes that read no prompt
            self._states[: text.start] = 0
            self.backend.forward(tokens[: text.start - 1])
        for at in range(text.start, len(tokens), ROWS):
            draft = Draft(tuple(tokens[at : min(at + ROWS, len(tokens)) - 1].tolist()))
            pieces.append(likely(self.backend.forward(tokens[:at], draft)))
        ids, chances = (np.concatenate(each) for each in zip(*pieces, strict=True))
        self._states[len(tokens) - 1] = 0  # no head reads this token's state
        states = self._states[: len(tokens)].copy() if self._states.size else None
        return Sample(tokens, text.start, ids, chances, states)

    def _forget(self, first: int) -> None:
        """Clear the cache, so that nothing read before is reused for a text that begins with that token."""
        self.backend.forward(np.array([1 if first == 0 else 0], dtype=np.int32))


def likely(logits: Logits) -> tuple[NDArray[np.int32], NDArray[np.float16]]:
    """Return the most likely tokens and their log probabilities [n, N_LIKELY], for rows [n, n_vocab]."""
    n = min(N_LIKELY, logits.shape[1])
    found = np.argpartition(-logits, n - 1, axis=1)[:, :n]
    values = np.take_along_axis(logits, found, axis=1)
    order = np.lexsort((found, -values))
    found, values = np.take_along_axis(found, order, axis=1), np.take_along_axis(values, order, axis=1)
    most = values[:, :1].astype(np.float64)
    total = np.exp(logits - most).sum(axis=1, keepdims=True)
    return found.astype(np.int32), (values - most - np.log(total)).astype(np.float16)
