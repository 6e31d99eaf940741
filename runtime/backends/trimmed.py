"""A draft model with a part of its vocabulary, over the whole's token ids: TrimmedBackend, TrimmedSharedBackend.

If all tokens of a pass are kept, the library gets their row numbers, otherwise embedding vectors from the whole file's
table. Callers see the whole vocabulary, in which words that are not kept are practically impossible. Knows batches and
tables; the file defines the kept words.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import llama_cpp.llama_cpp as lib
import numpy as np
from numpy.typing import NDArray

from runtime.backends.file_rows import FileRows
from runtime.backends.library import FLOAT_P, INT32_P
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.backends.shared import SharedBackend
from runtime.core.draft import Draft, Logits, Tokens
from runtime.core.errors import DraftError
from runtime.models.header import read_header
from runtime.models.trimmed import TABLE, Trim

CHECKED = 6  # rows that are compared
NEVER = np.float32(-1e30)  # logit of a word that is not computed: finite, because a grammar may allow no other


class TrimmedWords:
    """The kept words of a trimmed copy of that width, and the vectors of all words as stored in the whole file.

    `scale` is the factor by which the model's graph multiplies the vectors that it looks up, but not vectors in its
    input. Raises DraftError where the whole file does not have those words.
    """

    def __init__(self, trim: Trim, width: int) -> None:
        header = read_header(trim.source)
        tensor = next((tensor for tensor in header.tensors if tensor.name == TABLE), None)
        if tensor is None or tensor.shape[:1] != (width,) or trim.kept[-1] >= (n := tensor.shape[-1]):
            raise DraftError(f"it has words or a width that {trim.source}, which it was made from, does not have")
        self.width, self.n_vocab, self.kept, self.scale = width, n, trim.kept, np.float32(1)
        self.places: Tokens = np.full(n, -1, dtype=np.int32)  # row of each word; -1: not kept
        self.places[trim.kept] = np.arange(len(trim.kept), dtype=np.int32)
        self._rows = FileRows(trim.source, tensor, header.data_start)

    def vectors(self, tokens: Tokens) -> NDArray[np.float32]:
        """Return the vectors [n, width] that the library would look up for these tokens."""
        return self._rows.floats(tokens) * self.scale


class Trimmed(LlamaBackend):
    """Base of both kinds of contexts."""

    def take(self, words: TrimmedWords) -> None:
        """Use the whole vocabulary's token ids from now on. Raises DraftError where vectors cannot replace words."""
        self.words, self.n_vocab = words, words.n_vocab
        self._small: Tokens = np.empty(self.n_batch, dtype=np.int32)
        self._wide: Logits = np.full((1, self.n_vocab), NEVER, dtype=np.float32)
        self._takes_rows = True  # use row numbers where all tokens of a pass have one
        self._find_scale(words.kept[:: max(1, len(words.kept) // CHECKED)][:CHECKED])

    def _find_scale(self, tokens: Tokens) -> None:
        """Find the scale for which vectors give the same logits as row numbers. Raises DraftError if there is none.

        Some architectures scale the vectors that they look up, but not those in their input.
        """
        by_row = self._fresh_logits(tokens)
        for scale in (np.float32(1), np.sqrt(np.float32(self.words.width))):
            self.words.scale, self._takes_rows = scale, False
            by_vector = self._fresh_logits(tokens)
            self._takes_rows = True
            if np.array_equal(by_vector, by_row):
                return
        raise DraftError(f"{self.model.path.name} cannot take embeddings as input with this build of llama.cpp")

    def _fresh_logits(self, tokens: Tokens) -> Logits:
        """Return the logits after these tokens, decoded into an empty cache, which is emptied again."""
        self._clear()
        found = self.forward(tokens).copy()
        self._clear()
        return found

    def _decode(self, batch: lib.llama_batch) -> None:
        tokens = np.ctypeslib.as_array(batch.token, (batch.n_tokens,))
        before, rows = tokens.ctypes.data, self.words.places[tokens]
        if self._takes_rows and rows.min() >= 0:
            self._small[: len(rows)] = rows
            batch.token = ctypes.cast(self._small.ctypes.data, INT32_P)
        else:
            self._vectors = self.words.vectors(tokens)  # kept as long as the batch points at them
            batch.token, batch.embd = None, ctypes.cast(self._vectors.ctypes.data, FLOAT_P)
        try:
            super()._decode(batch)
        finally:
            batch.token, batch.embd = ctypes.cast(before, INT32_P), None  # the batch is reused for later passes

    def _logits(self, rows: int) -> Logits:
        """Return the library's rows, spread over the whole vocabulary: [rows, n_vocab]."""
        if len(self._wide) < rows:
            self._wide = np.full((rows, self.n_vocab), NEVER, dtype=np.float32)
        kept = self.words.kept
        self._wide[:rows, kept] = np.ctypeslib.as_array(lib.llama_get_logits(self.handle), (rows, len(kept)))
        return self._wide[:rows]


class TrimmedBackend(Trimmed):
    """A context of a copy with fewer words: implements Backend."""


class TrimmedSharedBackend(Trimmed, SharedBackend):
    """A context of a copy with fewer words, shared by several conversations."""


def open_trimmed(model: LlamaModel, trim: Trim, n_ctx: int, n_rows: int, n_batch: int, n_seats: int = 1) -> Trimmed:
    """Open the context of a copy, over the whole vocabulary's tokens. Raises DraftError, ModelError."""
    trim.check(model.path)
    backend: Trimmed
    if n_seats > 1:
        backend = TrimmedSharedBackend(model, n_ctx, n_rows, n_batch, n_seats)
    else:
        backend = TrimmedBackend(model, n_ctx, n_rows, n_batch)
    try:
        backend.take(TrimmedWords(trim, model.n_embd))
    except BaseException:
        backend.close()
        raise
    return backend


def differs(whole: LlamaBackend, copy: Trimmed, tokens: Sequence[int]) -> bool:
    """Return whether the logits of two contexts, of several rows, differ in any bit for the words of the copy."""
    context, draft = np.array(tokens[:-CHECKED], dtype=np.int32), Draft(tuple(tokens[-CHECKED:]))
    kept = copy.words.kept
    return not np.array_equal(whole.forward(context, draft)[:, kept], copy.forward(context, draft)[:, kept])
