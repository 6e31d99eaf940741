"""The target's own vectors of words, read from its file as they are needed: a whole table would take gigabytes.

Knows GGUF's quantized rows; knows no models that run.
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
    """The rows of a head's output, as bytes: those of some of the target's words."""

    kept: NDArray[np.int64]  # [n] the target's ids
    rows: NDArray[Any]  # [n, bytes]
    kind: Any  # a gguf.GGMLQuantizationType


class TargetWords:
    """Both tables of words of one target; they may be one. Raises ModelError."""

    def __init__(self, target: Path) -> None:
        paths = [target.with_name(name) for name in shard_names(target.name)]
        found = {tensor.name: tensor for path in paths for tensor in GGUFReader(path).tensors if tensor.name in TABLES}
        if INPUT not in found:
            raise ModelError(f"{target.name} has no table of words, so no draft can be trained for it.")
        self._input, self._output = found[INPUT], found.get(OUTPUT, found[INPUT])
        self.n_vocab = len(self._input.data)

    def vectors(self, ids: Tensor) -> Tensor:
        """Of what the target reads: ids [...] -> [..., width]."""
        unique, places = np.unique(ids.cpu().numpy(), return_inverse=True)
        rows = torch.from_numpy(floats(self._input.data[unique], self._input.tensor_type))
        return rows[torch.from_numpy(places.reshape(ids.shape))].to(ids.device)

    def output(self, kept: NDArray[np.int64]) -> OutputRows:
        """The rows of these words in what the target says."""
        return OutputRows(kept, np.array(self._output.data[kept]), self._output.tensor_type)

    def pieces(self, n: int) -> Any:
        """The whole input table, `n` rows [n, width] at a time."""
        for at in range(0, self.n_vocab, n):
            yield floats(self._input.data[at : at + n], self._input.tensor_type)


TABLES = INPUT, OUTPUT


def floats(rows: NDArray[Any], kind: Any) -> NDArray[np.float32]:
    """Quantized rows in single precision."""
    return np.array(quants.dequantize(np.ascontiguousarray(rows), kind), dtype=np.float32)
