"""NarrowHead: an output head that computes only the first words, in one pass of a context's graph.

The first rows of a matrix are themselves a matrix in the same place, so nothing is copied. Knows ggml's tensors;
nodes.py decides when a pass is narrow.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from runtime.backends.private_llama import Tensor

# The logit of a word that is not computed: finite, because a grammar may allow no other
NEVER = np.float32(-1e30)


class NarrowHead:
    """The node at `address` of a graph that multiplies by the output matrix, which has a row for each word.

    Between `narrow` and `widen`, it uses `few`, which describes the first rows of that matrix.
    """

    def __init__(self, address: int, node: Tensor, few: Tensor, n_words: int) -> None:
        self.address, self._node, self._few = address, node, few
        self._whole, self._n_vocab, self.n_words = node.src[0], node.ne[0], n_words
        self._is_narrow = False
        few.ne[1] = n_words
        few.nb[2] = few.nb[3] = few.nb[1] * n_words

    def narrow(self) -> bool:
        """Narrow the head before it is computed; return True. Raises RuntimeError if the node has changed."""
        if (self._node.src[0], self._node.ne[0]) != (self._whole, self._n_vocab):
            raise RuntimeError("the head of llama.cpp's graph has changed")
        self._node.src[0], self._node.ne[0] = ctypes.addressof(self._few), self.n_words
        self._is_narrow = True
        return True

    def widen(self) -> bool:
        """Restore a narrow head before the library reads the logits of all words; return True."""
        if self._is_narrow:
            self._node.src[0], self._node.ne[0] = self._whole, self._n_vocab
            self._is_narrow = False
        return True
