"""How many texts for an embedding or a reranking model share a pass, and what becomes of one. Plain data; knows no
model.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Pooling:
    """What an embedding or a reranking model does, and how much of it in a pass."""

    n_rows: int = 1  # tokens of a pass over several texts
    n_texts: int = 1  # texts of a pass
    ranks: bool = False  # it scores a document for a query; else it makes vectors
    is_nested: bool = False  # the first numbers of its vectors are vectors too (Matryoshka)

    def n_fitting(self, lengths: Iterable[int]) -> int:
        """Return how many texts of these numbers of tokens, taken in order, one pass holds. A longer one is alone."""
        n = n_rows = 0
        for length in lengths:
            if n and (n_rows + length > self.n_rows or n == self.n_texts):
                break
            n, n_rows = n + 1, n_rows + length
        return n


class ReadText(NamedTuple):
    """A text's token ids, and its vector [width]; None where the text has no tokens, or too many."""

    tokens: list[int]
    vector: NDArray[np.float32] | None


ONE_BY_ONE = Pooling()  # embeddings from a model that writes text
