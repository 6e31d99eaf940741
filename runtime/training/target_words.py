"""Reads the target's token embeddings and output rows from its file on demand: a whole table would take gigabytes.

Knows GGUF's quantized rows; knows no running models.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from gguf import GGUFReader, quants
from numpy.typing import NDArray
from torch import Tensor

from runtime.core.errors import ModelError
from runtime.models.shards import shard_names

INPUT, OUTPUT = "token_embd.weight", "output.weight"


class OutputRows(NamedTuple):
    """The rows of a head's output, as bytes: those of some of the target's tokens."""

    kept: NDArray[np.int64]  # [n] the target's ids
    rows: NDArray[Any]  # [n, bytes]
    kind: Any  # a gguf.GGMLQuantizationType


class TargetWords:
    """The input and output tables of one target, which may be the same. Raises ModelError."""

    def __init__(self, target: Path) -> None:
        paths = [target.with_name(name) for name in shard_names(target.name)]
        found = {tensor.name: tensor for path in paths for tensor in GGUFReader(path).tensors if tensor.name in TABLES}
        if INPUT not in found:
            raise ModelError(f"{target.name} has no table of words, so no draft can be trained for it.")
        self._input, self._output = found[INPUT], found.get(OUTPUT, found[INPUT])
        self.n_vocab = len(self._input.data)

    def vectors(self, ids: Tensor) -> Tensor:
        """Return the target's input embeddings: ids [...] -> [..., width]."""
        unique, places = np.unique(ids.cpu().numpy(), return_inverse=True)
        rows = torch.from_numpy(floats(self._input.data[unique], self._input.tensor_type))
        return rows[torch.from_numpy(places.reshape(ids.shape))].to(ids.device)

    def output(self, kept: NDArray[np.int64]) -> OutputRows:
        """Return the rows of these tokens in the output table."""
        return OutputRows(kept, np.array(self._output.data[kept]), self._output.tensor_type)

    def pieces(self, n: int) -> Any:
        """Yield the whole input table, `n` rows [n, width] at a time."""
        for at in range(0, self.n_vocab, n):
            yield floats(self._input.data[at : at + n], self._input.tensor_type)


TABLES = INPUT, OUTPUT


def floats(rows: NDArray[Any], kind: Any) -> NDArray[np.float32]:
    """Return quantized rows in single precision."""
    return np.array(quants.dequantize(np.ascontiguousarray(rows), kind), dtype=np.float32)
