"""Tiny vision encoders with random weights, of the kinds that are run here, and models that read what they compute."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFWriter
from numpy.typing import NDArray

from bench.instruments.architectures.families import usual
from bench.instruments.architectures.writer import TEMPLATE, random_tensors, write, write_family
from bench.instruments.shapes import N_BASE, TINY, add_layers, add_matrix, add_vocabulary, begin, finish
from runtime.backends.mtmd_library import is_built
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header

SPATIAL = ("qwen2vl_merger", "qwen2.5vl_merger", "qwen3vl_merger")  # with positions in three dimensions
KINDS = ("mlp", "gemma3", "idefics3", "pixtral", *SPATIAL)
WIDTH, FFN, HEADS, LAYERS, PATCH = 64, 128, 2, 3, 8  # of the encoders
SIDES = {"mlp": 32, "gemma3": 64, "idefics3": 64, "pixtral": 64} | dict.fromkeys(SPATIAL, 64)  # pixels of a side
SECTIONS: dict[str, Any] = {"rope.dimension_sections": [4, 6, 6, 0]}
READERS = {  # of images of the spatial kinds
    "qwen2vl_merger": usual("qwen2vl", biases="{qkv}", is_tied=True, **SECTIONS),
    "qwen2.5vl_merger": usual("qwen2vl", biases="{qkv}", is_tied=True, **SECTIONS),
    "qwen3vl_merger": usual("qwen3vl", is_tied=True, n_deepstack_layers=1, **SECTIONS),
}

AROUND = "<fake_token_around_image>", "<global-img>", "ĊĊ"  # what Idefics 3 puts around its images

needs_mtmd = pytest.mark.skipif(
    not is_built(), reason="llama.cpp was compiled without mtmd: `slipstream doctor` shows the command that does it"
)
Tensors = dict[str, NDArray[np.float32]]


def write_target(folder: Path, kind: str, seed: int = 0) -> Path:
    """Write a model for an encoder of this kind, which attends within windows where the encoder's usual one does."""
    if kind == "gemma3":
        return write_family("gemma3", folder, seed + 1)
    if kind in SPATIAL:
        family = READERS[kind]
        return write(folder / "target.gguf", kind, family, random_tensors(kind, folder, seed + 1, family))
    rng, path = np.random.default_rng(seed), folder / "target.gguf"
    writer = begin(path, TINY)
    words = [*AROUND, *(f"w{i}" for i in range(TINY.vocab - N_BASE - len(AROUND)))]
    add_vocabulary(writer, words, ["w 0"])
    writer.add_chat_template(TEMPLATE)
    add_matrix(writer, "token_embd.weight", TINY.vocab, TINY.width, rng)
    writer.add_tensor("output_norm.weight", np.ones(TINY.width, dtype=np.float32))
    add_layers(writer, TINY, rng)
    return finish(writer, path)


def width_of(target: Path) -> int:
    """Return the width of a model's embeddings."""
    return ModelFacts(read_model_header(target)).own("embedding_length")


def write_projector(
    path: Path,
    kind: str,
    width: int = TINY.width,
    seed: int = 5,
    changes: Mapping[str, object] | None = None,
    others: Mapping[str, NDArray[np.float32]] | None = None,
) -> Path:
    """Write an encoder whose embeddings are `width` wide. `changes` are other values of its metadata, `others` other
    tensors.
    """
    writer = GGUFWriter(str(path), "clip")
    is_newer = kind == "qwen2.5vl_merger"
    merges = 2 if kind in ("gemma3", "idefics3") else 1
    values: dict[str, object] = (
        {
            "clip.projector_type": kind,
            "clip.has_vision_encoder": True,
            "clip.use_gelu": not is_newer,
            "clip.use_silu": is_newer,
            "clip.vision.image_size": SIDES[kind],
            "clip.vision.patch_size": PATCH,
            "clip.vision.preproc_image_size": 2 * SIDES[kind],
            "clip.vision.projector.scale_factor": merges,
            "clip.vision.embedding_length": WIDTH,
            "clip.vision.feed_forward_length": FFN,
            "clip.vision.block_count": LAYERS,
            "clip.vision.projection_dim": width,
            "clip.vision.attention.head_count": HEADS,
            "clip.vision.attention.layer_norm_epsilon": 1e-5,
            "clip.vision.image_mean": [0.5, 0.5, 0.5],
            "clip.vision.image_std": [0.5, 0.5, 0.5],
        }
        | ({"clip.vision.n_wa_pattern": 2} if is_newer else {})
        | dict(changes or {})
    )
    for key, value in values.items():
        add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
        add.get(type(value), writer.add_array)(key, value)  # type: ignore[arg-type]
    for name, data in (tensors(kind, width, np.random.default_rng(seed)) | dict(others or {})).items():
        writer.add_tensor(name, data)
    return finish(writer, path)


def tensors(kind: str, width: int, rng: np.random.Generator) -> Tensors:
    """Return all tensors of an encoder by name."""
    found: Tensors = {"v.patch_embd.weight": matrix(rng, WIDTH, 3, PATCH, PATCH)}
    if kind in SPATIAL:
        return found | qwen(kind, width, rng)
    n_patches = (SIDES[kind] // PATCH) ** 2
    if kind != "pixtral":
        found["v.patch_embd.bias"] = matrix(rng, WIDTH)
        found["v.position_embd.weight"] = matrix(rng, n_patches + (kind == "mlp"), WIDTH)
    for i in range(LAYERS):
        found |= layer(f"v.blk.{i}", rng, has_biases=kind != "pixtral")
    return found | {"mlp": llava, "gemma3": gemma, "idefics3": idefics, "pixtral": pixtral}[kind](width, rng)


def layer(prefix: str, rng: np.random.Generator, has_biases: bool) -> Tensors:
    """Return the tensors of one layer."""
    shapes = {f"attn_{name}": (WIDTH, WIDTH) for name in ("q", "k", "v", "out")}
    shapes |= {"ffn_up": (FFN, WIDTH), "ffn_down": (WIDTH, FFN)}
    found = {f"{prefix}.{name}.weight": matrix(rng, *shape) for name, shape in shapes.items()}
    found |= {f"{prefix}.{name}.weight": np.ones(WIDTH, np.float32) for name in ("ln1", "ln2")}
    if has_biases:
        found |= {f"{prefix}.{name}.bias": matrix(rng, shape[0]) for name, shape in shapes.items()}
        found |= {f"{prefix}.{name}.bias": matrix(rng, WIDTH) for name in ("ln1", "ln2")}
    return found


def llava(width: int, rng: np.random.Generator) -> Tensors:
    """Return what follows CLIP's layers in llava, with its class and first norm."""
    return {
        "v.class_embd": matrix(rng, WIDTH),
        "v.pre_ln.weight": np.ones(WIDTH, np.float32),
        "v.pre_ln.bias": matrix(rng, WIDTH),
        "mm.0.weight": matrix(rng, width, WIDTH),
        "mm.0.bias": matrix(rng, width),
        "mm.2.weight": matrix(rng, width, width),
        "mm.2.bias": matrix(rng, width),
    }


def gemma(width: int, rng: np.random.Generator) -> Tensors:
    """Return what follows SigLIP's layers in Gemma 3."""
    return {
        "v.post_ln.weight": np.ones(WIDTH, np.float32),
        "v.post_ln.bias": matrix(rng, WIDTH),
        "mm.input_projection.weight": matrix(rng, WIDTH, width),
        "mm.soft_emb_norm.weight": np.ones(WIDTH, np.float32),
    }


def idefics(width: int, rng: np.random.Generator) -> Tensors:
    """Return what follows SigLIP's layers in Idefics 3 and SmolVLM."""
    return {
        "v.post_ln.weight": np.ones(WIDTH, np.float32),
        "v.post_ln.bias": matrix(rng, WIDTH),
        "mm.model.fc.weight": matrix(rng, width, 4 * WIDTH),
    }


def qwen(kind: str, width: int, rng: np.random.Generator) -> Tensors:
    """Return all but the first patch embedding of Qwen's encoders: of 2, 2.5 or 3."""
    found: Tensors = {"v.patch_embd.weight.1": matrix(rng, WIDTH, 3, PATCH, PATCH)}
    for i in range(LAYERS):
        found |= layer(f"v.blk.{i}", rng, has_biases=True)
        if kind == "qwen2.5vl_merger":
            found |= {
                f"v.blk.{i}.ffn_gate.weight": matrix(rng, FFN, WIDTH),
                f"v.blk.{i}.ffn_gate.bias": matrix(rng, FFN),
            }
            del found[f"v.blk.{i}.ln1.bias"], found[f"v.blk.{i}.ln2.bias"]
        if kind == "qwen3vl_merger":
            for part in ("weight", "bias"):
                parts = [found.pop(f"v.blk.{i}.attn_{name}.{part}") for name in "qkv"]
                found[f"v.blk.{i}.attn_qkv.{part}"] = np.concatenate(parts)
    if kind == "qwen3vl_merger":
        found |= {"v.patch_embd.bias": matrix(rng, WIDTH), **deep("v.deepstack.0", width, rng)}
        found["v.position_embd.weight"] = matrix(rng, (SIDES[kind] // PATCH) ** 2, WIDTH)
    found["v.post_ln.weight"] = np.ones(WIDTH, np.float32)
    if kind != "qwen2.5vl_merger":
        found["v.post_ln.bias"] = matrix(rng, WIDTH)
    return found | projection("mm.0", "mm.2", width, rng)


def deep(prefix: str, width: int, rng: np.random.Generator) -> Tensors:
    """Return what Qwen 3 adds to the embeddings of a layer of the model."""
    norm = {f"{prefix}.norm.weight": np.ones(4 * WIDTH, np.float32), f"{prefix}.norm.bias": matrix(rng, 4 * WIDTH)}
    return norm | projection(f"{prefix}.fc1", f"{prefix}.fc2", width, rng)


def projection(first: str, second: str, width: int, rng: np.random.Generator) -> Tensors:
    """Return two matrices from four patches to embeddings."""
    return {
        f"{first}.weight": matrix(rng, 4 * WIDTH, 4 * WIDTH),
        f"{first}.bias": matrix(rng, 4 * WIDTH),
        f"{second}.weight": matrix(rng, width, 4 * WIDTH),
        f"{second}.bias": matrix(rng, width),
    }


def pixtral(width: int, rng: np.random.Generator) -> Tensors:
    """Return what is around Pixtral's layers."""
    return {
        "v.pre_ln.weight": np.ones(WIDTH, np.float32),
        **{f"v.blk.{i}.ffn_gate.weight": matrix(rng, FFN, WIDTH) for i in range(LAYERS)},
        "mm.1.weight": matrix(rng, width, WIDTH),
        "mm.1.bias": matrix(rng, width),
        "mm.2.weight": matrix(rng, width, width),
        "mm.2.bias": matrix(rng, width),
        "v.token_embd.img_break": matrix(rng, width),
    }


def matrix(rng: np.random.Generator, *shape: int) -> NDArray[np.float32]:
    """Return random weights that keep the size of what they multiply."""
    return (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]) or 1)).astype(np.float32)
