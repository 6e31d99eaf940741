"""A target of float weights, LoRA adapters with random matrices for it, and the target with their numbers merged."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from gguf import GGUFWriter
from numpy.typing import NDArray

from bench.instruments.shapes import N_BASE, TINY, Shape, add_vocabulary, begin, finish
from runtime.models.header import read_model_header

Matrix = NDArray[np.float32]  # [n_out, n_in]
ALPHA = 4.0


def shapes_of(shape: Shape = TINY) -> dict[str, tuple[int, int]]:
    """Return the rows and columns of each matrix."""
    kv = shape.width // shape.heads * shape.kv_heads
    found = {"token_embd.weight": (shape.vocab, shape.width), "output.weight": (shape.vocab, shape.width)}
    each = {
        "attn_q": (shape.width, shape.width), "attn_k": (kv, shape.width), "attn_v": (kv, shape.width),
        "attn_output": (shape.width, shape.width), "ffn_gate": (shape.ffn, shape.width),
        "ffn_up": (shape.ffn, shape.width), "ffn_down": (shape.width, shape.ffn),
    }  # fmt: skip
    return found | {f"blk.{n}.{name}.weight": size for n in range(shape.layers) for name, size in each.items()}


def random_matrix(name: str, size: tuple[int, int], seed: int) -> Matrix:
    """Return values of about 1 / sqrt(columns), the same for each name and seed."""
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    return (rng.normal(size=size) / size[1] ** 0.5).astype(np.float32)


def halves(name: str, size: tuple[int, int], seed: int, rank: int) -> tuple[Matrix, Matrix]:
    """Return an adapter's matrices [rank, n_in] and [n_out, rank] for one of the model."""
    rows, columns = size
    return random_matrix(name + "a", (rank, columns), seed), random_matrix(name + "b", (rows, rank), seed)


def write_adapter(
    path: Path,
    seed: int = 1,
    rank: int = 8,
    names: Iterable[str] | None = None,
    shape: Shape = TINY,
    changed: Mapping[str, object] | None = None,
    kind: type = np.float32,
) -> Path:
    """Write an adapter of some matrices, all by default; `changed` has other values for its metadata."""
    values = {"general.type": "adapter", "adapter.type": "lora", "adapter.lora.alpha": ALPHA} | dict(changed or {})
    writer = GGUFWriter(str(path), str(values.pop("general.architecture", "llama")))
    for key, value in values.items():
        if isinstance(value, list):
            writer.add_array(key, value)
        elif value is not None:
            (writer.add_float32 if isinstance(value, float) else writer.add_string)(key, value)
    sizes = shapes_of(shape)
    for name in sizes if names is None else names:
        a, b = halves(name, sizes[name], seed, rank)
        # The input table is looked up, so its matrices are the other way round
        parts = (b, a.T.copy()) if name == "token_embd.weight" else (a, b)
        for ending, part in zip(("a", "b"), parts, strict=True):
            writer.add_tensor(f"{name}.lora_{ending}", part.astype(kind))
    return finish(writer, path)


def write_base(path: Path, merged: Sequence[tuple[int, int, float]] = (), shape: Shape = TINY, seed: int = 0) -> Path:
    """Write the target in F32, with the numbers of adapters added to its own: the seed, rank and scale of each."""
    writer = begin(path, shape)
    add_vocabulary(writer, [f"w{i}" for i in range(shape.vocab - N_BASE)], ["w 0"])
    writer.add_chat_template("{% for message in messages %}{{ message.content }} {% endfor %}")
    for name, size in shapes_of(shape).items():
        whole = random_matrix(name, size, seed).astype(np.float64)
        for each, rank, scale in merged:
            a, b = halves(name, size, each, rank)
            whole += scale * ALPHA / rank * (b.astype(np.float64) @ a.astype(np.float64))
        writer.add_tensor(name, whole.astype(np.float32))
    for name in (
        "output_norm",
        *(f"blk.{n}.{norm}" for n in range(shape.layers) for norm in ("attn_norm", "ffn_norm")),
    ):
        writer.add_tensor(f"{name}.weight", np.ones(shape.width, dtype=np.float32))
    return finish(writer, path)


def write_adapter_for(model: Path, path: Path, rank: int = 4) -> Path:
    """Write an adapter of all matrices of a model's layers, those of experts too."""
    header, rng = read_model_header(model), np.random.default_rng(0)
    writer = GGUFWriter(str(path), header.text("general.architecture"))
    writer.add_string("general.type", "adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", 2.0 * rank)
    for tensor in header.tensors:
        if min(tensor.shape) > 1 < len(tensor.shape) and not re.search("norm|conv|rope|^token_embd", tensor.name):
            columns, rows, *experts = tensor.shape
            a, b = rng.normal(size=(*experts, rank, columns)), rng.normal(size=(*experts, rows, rank))
            writer.add_tensor(f"{tensor.name}.lora_a", (a / columns**0.5).astype(np.float32))
            writer.add_tensor(f"{tensor.name}.lora_b", (0.3 * b).astype(np.float32))
    return finish(writer, path)
