"""A head that computes the first words only, in one pass of a context's graph: NarrowHead.

The first rows of a matrix are a matrix too, where they lie, so nothing is copied. Knows ggml's tensors; when a pass is
to be narrow is said by nodes.py.
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
    """The node at that address of a graph, which multiplies by a matrix with a row for each word; it is given `few`,
    which describes the first rows of that matrix, between `narrow` and `widen`.
    """

    def __init__(self, address: int, node: Tensor, few: Tensor, n_words: int) -> None:
        self.address, self._node, self._few = address, node, few
        self._whole, self._n_vocab, self.n_words = node.src[0], node.ne[0], n_words
        self._is_narrow = False
        few.ne[1] = n_words
        few.nb[2] = few.nb[3] = few.nb[1] * n_words

    def narrow(self) -> bool:
        """Before it is computed. Raises RuntimeError for a node that is not what it was."""
        if (self._node.src[0], self._node.ne[0]) != (self._whole, self._n_vocab):
            raise RuntimeError("the head of llama.cpp's graph is another by now")
        self._node.src[0], self._node.ne[0] = ctypes.addressof(self._few), self.n_words
        self._is_narrow = True
        return True

    def widen(self) -> bool:
        """After that, and before the library takes the logits: it reads as many as there are words. Else nothing."""
        if self._is_narrow:
            self._node.src[0], self._node.ne[0] = self._whole, self._n_vocab
            self._is_narrow = False
        return True
