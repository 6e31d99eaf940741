"""Runs the quantized target on texts that it generated: its probabilities at each position, and the states that a head
reads.

Knows backends; knows no torch. The result for a text does not depend on earlier texts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np

from runtime.backends.contexts import open_backend
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.backends.shown_states import Rows
from runtime.core.draft import Draft, Logits, Tokens
from runtime.loading import layout
from runtime.models.heads import STATES
from runtime.training.samples import MAX_TEXT_TOKENS, N_LIKELY, Halves, Ids, Sample

ROWS = 32  # rows of logits per pass: they take megabytes with a large vocabulary


@contextmanager
def teacher_of(
    target: Path, layers: tuple[int, ...], threads: int = 1, shows_outputs: bool = False
) -> Iterator[Teacher]:
    """Open a target that exposes the inputs of `layers`, () for none, or instead what its output matrix reads. Raises
    ModelError.
    """
    n_ctx = MAX_TEXT_TOKENS + ROWS
    with (
        closing(LlamaModel(target, exact=layout.prefers_exact(target))) as model,
        closing(open_backend(model, n_ctx, ROWS, STATES, is_frugal=model.is_recurrent)) as backend,
    ):
        backend.set_threads(threads, threads)
        yield Teacher(backend, n_ctx, layers, model.n_embd, shows_outputs)


class Teacher:
    """An open target."""

    def __init__(
        self, backend: LlamaBackend, n_ctx: int, layers: tuple[int, ...], width: int, shows_outputs: bool
    ) -> None:
        self.backend, self.shows_outputs = backend, shows_outputs
        self._states = np.zeros((n_ctx, (1 if shows_outputs else len(layers)) * width), dtype=np.float16)
        if shows_outputs:
            backend.shown.show_outputs(self._store_states)
        elif layers:
            backend.shown.show(layers, self._store_states)

    def _store_states(self, tokens: Tokens, start: int, states: Rows) -> None:
        self._states[start : len(tokens)] = states

    def read(self, text: Sample) -> Sample:
        """Return the sample of the first MAX_TEXT_TOKENS tokens of a text whose reply begins before that."""
        tokens = np.array(text.tokens[:MAX_TEXT_TOKENS], dtype=np.int32)
        # Clears the cache, so that nothing read before is reused for a text that begins with that token
        self.backend.forward(np.array([1 if tokens[0] == 0 else 0], dtype=np.int32))
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


def likely(logits: Logits) -> tuple[Ids, Halves]:
    """Return the most likely tokens and their log probabilities [n, N_LIKELY], for rows [n, n_vocab]."""
    n = min(N_LIKELY, logits.shape[1])
    found = np.argpartition(-logits, n - 1, axis=1)[:, :n]
    values = np.take_along_axis(logits, found, axis=1)
    order = np.lexsort((found, -values))
    found, values = np.take_along_axis(found, order, axis=1), np.take_along_axis(values, order, axis=1)
    most = values[:, :1].astype(np.float64)
    total = np.exp(logits - most).sum(axis=1, keepdims=True)
    return found.astype(np.int32), (values - most - np.log(total)).astype(np.float16)
