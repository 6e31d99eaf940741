"""A draft model that is never right: a real one with shuffled weights and the same vocabulary. Knows GGUF files."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
from gguf import GGUFReader


def hopeless(draft: Path, path: Path, seed: int = 1) -> Path:
    """Write a copy of `draft` with shuffled rows in its matrices."""
    shutil.copyfile(draft, path)
    rng = np.random.default_rng(seed)
    for tensor in GGUFReader(path, "r+").tensors:
        if len(tensor.data.shape) > 1:
            tensor.data[:] = tensor.data[rng.permutation(len(tensor.data))]
    return path
