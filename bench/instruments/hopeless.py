"""A draft that is never right: a real one whose weights are strewn, with the same words. Knows GGUF files."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
from gguf import GGUFReader


def hopeless(draft: Path, path: Path, seed: int = 1) -> Path:
    """Writes a copy of `draft` whose matrices have their rows in another order."""
    shutil.copyfile(draft, path)
    rng = np.random.default_rng(seed)
    for tensor in GGUFReader(path, "r+").tensors:
        if len(tensor.data.shape) > 1:
            tensor.data[:] = tensor.data[rng.permutation(len(tensor.data))]
    return path
