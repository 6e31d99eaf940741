"""The base of heads that compute from the target's last hidden state, in numpy: shapes, layers and output matrices.

Knows arrays; knows no files, no library and no target. A head is a NetworkHead in its drafter's file, and the rest is
found through the registry: the drafter's name is also the kind in a file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from runtime.core.draft import Logits, Tokens

Rows = NDArray[np.float32]  # [n, width], or one row [width]
Weights = Mapping[str, Rows]  # by tensor name
WordVectors = Callable[[Tokens], Rows]  # ids [n] -> the target's input embeddings [n, width]
OUTPUT = "output.weight"  # of all heads that have none of their own


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """The dimensions of a Llama layer."""

    n_heads: int = 0
    n_kv: int = 0  # heads of keys and values
    length: int = 0  # of a head
    ffn: int = 0
    rope_base: float = 10_000.0
    norm_eps: float = 1e-5

    @classmethod
    def of(cls, width: int, n_heads: int, n_kv: int, ffn: int, rope_base: float, norm_eps: float) -> Self | None:
        """Return the dimensions of a layer of that width; None if they do not fit together."""
        if not (width and n_heads and n_kv and ffn) or width % (2 * n_heads) or n_heads % n_kv:
            return None
        return cls(n_heads, n_kv, width // n_heads, ffn, rope_base, norm_eps)


@dataclass(frozen=True, slots=True)
class NetworkShape:
    """The dimensions that a head's file declares."""

    width: int  # of the target's hidden states
    n_heads: int  # tokens of a draft, at most
    n_layers: int  # of each head
    attention: AttentionShape | None = None  # if it has a layer that attends


class NetworkHead:
    """Base of the kinds of heads.

    `weights` have the tensors of `tensors`; `words` looks up the target's input embeddings. It reads the states of the
    latest `n_window` positions.
    """

    n_window = 1
    attends = False  # whether it needs an AttentionShape

    def __init__(self, shape: NetworkShape, weights: Weights, words: WordVectors) -> None:
        self.shape, self.weights, self.words = shape, weights, words

    @staticmethod
    def tensors(shape: NetworkShape) -> dict[str, tuple[int, ...]]:
        """Return the dimensions of the needed tensors by name, as [out, in] or [out]."""
        raise NotImplementedError

    def logits(self, states: Rows, tokens: Tokens) -> Logits:
        """Return the logits [words] of the token that follows `tokens` [m or more], which follow the first position of
        `states` [m, width], those of the latest positions.
        """
        raise NotImplementedError

    def outputs(self, feature: Rows, head: int) -> Logits:
        """Return the logits [words] of a head's feature [width]."""
        name = own_output(head)
        if name not in self.weights:
            return self.weights[OUTPUT] @ feature
        return self.weights[name] @ feature + self.weights.get(name.replace("weight", "bias"), np.float32(0))

    @property
    def n_words(self) -> int:
        """Number of tokens that it can draft."""
        return len(self.weights[OUTPUT if OUTPUT in self.weights else own_output(0)])


def own_output(head: int) -> str:
    """Return the name of a head's own output matrix."""
    return f"head.{head}.output.weight"


def block_names(head: int, layer: int, name: str = "") -> tuple[str, str]:
    """Return the names of the matrix and the bias of a head's block; `name` is that of a second matrix."""
    prefix = f"head.{head}.{layer}{name and '.'}{name}"
    return f"{prefix}.weight", f"{prefix}.bias"


def silu(x: Rows) -> Rows:
    """Return x * sigmoid(x), without overflow for large negative values."""
    found: Rows = x / (1 + np.exp(-np.maximum(x, np.float32(-80))))
    return found


def residual_block(x: Rows, matrix: Rows, bias: Rows) -> Rows:
    """Return x + silu(matrix @ x + bias) for x [width]."""
    return x + silu(matrix @ x + bias)
