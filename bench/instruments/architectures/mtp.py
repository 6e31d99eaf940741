"""Writes a tiny model of a family of `drafting`, with the drafting-layer tensors missing in the library's list."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bench.instruments.architectures.families import FAMILIES
from bench.instruments.architectures.writer import Tensors, random_tensors, write


def write_drafting(name: str, folder: Path, without: str = "", seed: int = 1) -> Path:
    """Write `folder/name.gguf`, without the tensors whose names begin with `without`."""
    family, tensors = FAMILIES[name], random_tensors(name, folder, seed)
    last = f"blk.{int(str(family.metadata['block_count'])) - 1}"
    if family.architecture == "mimo2":
        parts = [tensors.pop(f"{last}.attn_{part}.weight") for part in "qkv"]
        tensors[f"{last}.attn_qkv.weight"] = np.concatenate(parts)
    if family.architecture == "deepseek4" and "nextn_predict_layers" in family.metadata:
        tensors |= entry(f"{last}.nextn", int(str(family.metadata["embedding_length"])))
    kept = {key: data for key, data in tensors.items() if not (without and key.startswith(without))}
    return write(folder / f"{name}.gguf", name, family, kept)


def entry(prefix: str, width: int) -> Tensors:
    """Return the input tensors of a drafting layer, which the library lists only if the file has them."""
    rng = np.random.default_rng(2)
    norms = {f"{prefix}.{name}.weight": np.ones(width, dtype=np.float32) for name in ("enorm", "hnorm")}
    return norms | {f"{prefix}.eh_proj.weight": rng.standard_normal((width, 2 * width), dtype=np.float32) * width**-0.5}
