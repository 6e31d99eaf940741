"""Tiny random embedding and reranking models, and what they must answer, computed here by NumPy."""

from __future__ import annotations

import json
import math
import string
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from gguf import GGUFWriter
from numpy.typing import NDArray

from bench.instruments.architectures.families import FAMILIES
from bench.instruments.architectures.writer import header, random_tensors
from bench.instruments.shapes import finish

Array = NDArray[np.float32]
RANK = 4  # llama.h: LLAMA_POOLING_TYPE_RANK
LONGEST = 512  # tokens that the tiny encoder reads
QWEN_PROMPT = "<|im_start|>system\nJudge.<|im_end|>\n<Query>: {query}\n<Document>: {document}<|im_end|>\n"


def write_encoder(folder: Path, *, ranks: bool = False, name: str = "") -> tuple[Path, Mapping[str, Array]]:
    """A BERT of floats, with a classifier if it `ranks`: its path and its tensors."""
    family = FAMILIES["bert"]
    if ranks:
        family = replace(family, metadata={**family.metadata, "pooling_type": RANK})
    tensors = random_tensors("bert", folder) | (classifier() if ranks else {})
    path = folder / f"{'reranker' if ranks else 'encoder'}.gguf"
    writer = header(path, name or path.stem, family)
    return written(writer, path, tensors), tensors


def write_last(folder: Path, *, ranks: bool = False) -> Path:
    """A Qwen3 whose last token counts; if it `ranks`, for two words, with a prompt of its own."""
    family = FAMILIES["qwen3embedding"]
    if ranks:
        family = replace(family, metadata={**family.metadata, "pooling_type": RANK})
    tensors = random_tensors("qwen3embedding", folder)
    path = folder / f"{'qwen-reranker' if ranks else 'qwen-embedding'}.gguf"
    writer = header(path, path.stem, family)
    if ranks:
        rng = np.random.default_rng(3)
        tensors |= {"cls.output.weight": rng.standard_normal((2, 128)).astype(np.float32)}
        writer.add_array("qwen3.classifier.output_labels", ["yes", "no"])
        writer.add_string("tokenizer.chat_template.rerank", QWEN_PROMPT)
    return written(writer, path, tensors)


def classifier(width: int = 128) -> dict[str, Array]:
    """The tensors that make a score of the first token's output."""
    rng = np.random.default_rng(2)
    shapes = {"cls.weight": (width, width), "cls.bias": (width,), "cls.output.weight": (1, width), "cls.output.bias": 1}
    return {name: 0.3 * rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}  # type: ignore[arg-type]


def written(writer: GGUFWriter, path: Path, tensors: Mapping[str, Array]) -> Path:
    for name, data in tensors.items():
        writer.add_tensor(name, data.astype(np.float32))
    return finish(writer, path)


def outputs(tensors: Mapping[str, Array], ids: Sequence[int], n_heads: int, epsilon: float = 1e-5) -> Array:
    """What the last layer of a BERT makes of a text [n, width]."""
    x = tensors["token_embd.weight"][list(ids)] + tensors["position_embd.weight"][: len(ids)]
    x = normed(x + tensors["token_types.weight"][0], tensors, "token_embd_norm", epsilon)
    for i in range(sum(name.endswith("attn_q.weight") for name in tensors)):
        heads = [split(linear(x, tensors, f"blk.{i}.attn_{part}"), n_heads) for part in "qkv"]
        read = linear(attended(*heads), tensors, f"blk.{i}.attn_output")
        x = normed(x + read, tensors, f"blk.{i}.attn_output_norm", epsilon)
        inner = gelu(linear(x, tensors, f"blk.{i}.ffn_up"))
        x = normed(x + linear(inner, tensors, f"blk.{i}.ffn_down"), tensors, f"blk.{i}.layer_output_norm", epsilon)
    return x


def linear(x: Array, tensors: Mapping[str, Array], name: str) -> Array:
    return x @ tensors[f"{name}.weight"].T + tensors[f"{name}.bias"]


def normed(x: Array, tensors: Mapping[str, Array], name: str, epsilon: float) -> Array:
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + epsilon)
    return x * tensors[f"{name}.weight"] + tensors[f"{name}.bias"]


def split(x: Array, n_heads: int) -> Array:
    return x.reshape(len(x), n_heads, -1).transpose(1, 0, 2)


def attended(q: Array, k: Array, v: Array) -> Array:
    scores = q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1])
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    return (shares / shares.sum(-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(q.shape[1], -1)


def gelu(x: Array) -> Array:
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def vector(tensors: Mapping[str, Array], ids: Sequence[int], n_heads: int = 4, epsilon: float = 1e-5) -> Array:
    """The embedding of a text: the mean of the outputs, at length 1."""
    mean = outputs(tensors, ids, n_heads, epsilon).mean(0)
    return mean / np.linalg.norm(mean)


def score(tensors: Mapping[str, Array], ids: Sequence[int]) -> float:
    """The score of a text by the classifier."""
    first = np.tanh(linear(outputs(tensors, ids, 4)[:1], tensors, "cls"))
    return float(linear(first, tensors, "cls.output")[0, 0])


class WordPieces:
    """The tokenizer of a published BERT without capitals, for plain English."""

    def __init__(self, tokenizer: Path) -> None:
        self._ids: dict[str, int] = json.loads(tokenizer.read_text(encoding="utf8"))["model"]["vocab"]

    def encode(self, text: str) -> list[int]:
        """The ids of a whole text."""
        spaced = "".join(f" {c} " if c in string.punctuation else c for c in text.lower())
        words = [piece for word in spaced.split() for piece in self._pieces(word)]
        return [self._ids["[CLS]"], *words, self._ids["[SEP]"]]

    def _pieces(self, word: str) -> list[int]:
        found, start = list[int](), 0
        while start < len(word):
            prefix = "##" if start else ""
            ends = range(len(word), start, -1)
            end = next((end for end in ends if prefix + word[start:end] in self._ids), 0)
            if not end:
                return [self._ids["[UNK]"]]
            found.append(self._ids[prefix + word[start:end]])
            start = end
        return found
