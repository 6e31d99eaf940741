"""Writes tiny models of a family: as they are, or with one thing changed so that the header contradicts the layers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFValueType, GGUFWriter, TokenType
from gguf.quants import quantize
from numpy.typing import NDArray

from bench.instruments.architectures.families import BPE, FAMILIES, SPM, WORDPIECE, Family, Value
from bench.instruments.architectures.tensors import has, is_float, tensor_shapes, values
from bench.instruments.shapes import N_BASE, Q8_0, add_vocabulary, finish

N_VOCAB = 512
PRINTABLE = [chr(code) for code in range(33, 127)]
SPACE = "▁"  # the space before a word in SentencePiece and llama.cpp's WordPiece
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def add_bpe(writer: GGUFWriter) -> None:
    """Add GPT-2's bytes, and words that hardly ever occur in text."""
    add_vocabulary(writer, [f"w{i}" for i in range(N_VOCAB - N_BASE)], ["w 0"])


def add_spm(writer: GGUFWriter) -> None:
    """Add a SentencePiece vocabulary: characters that join into words, and bytes for all others."""
    special = ["<unk>", "<s>", "</s>", "<|endoftext|>"]  # the library searches phi3's for the last one
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    words = [SPACE, *PRINTABLE, *(f"{SPACE}{character}" for character in PRINTABLE)]
    words += [f"w{i}" for i in range(N_VOCAB - len(special) - len(byte_tokens) - len(words))]
    kinds = [TokenType.UNKNOWN, *[TokenType.CONTROL] * 3, *[TokenType.BYTE] * len(byte_tokens)]
    writer.add_tokenizer_model("llama")
    writer.add_token_list([*special, *byte_tokens, *words])
    writer.add_token_types([*kinds, *[TokenType.NORMAL] * len(words)])
    writer.add_token_scores([-float(rank) for rank in range(N_VOCAB)])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(True)


def add_wordpiece(writer: GGUFWriter) -> None:
    """Add a WordPiece vocabulary: characters that begin a word, and those that continue it."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [*(f"{SPACE}{character}" for character in PRINTABLE), *PRINTABLE]
    words += [f"w{i}" for i in range(N_VOCAB - len(special) - len(words))]
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([*special, *words])
    writer.add_token_types([*[TokenType.CONTROL] * len(special), *[TokenType.NORMAL] * len(words)])
    writer.add_token_type_count(2)
    writer.add_pad_token_id(0)
    writer.add_unk_token_id(1)
    writer.add_bos_token_id(2)
    writer.add_sep_token_id(3)
    writer.add_mask_token_id(4)


ADDERS: dict[str, Callable[[GGUFWriter], None]] = {BPE: add_bpe, SPM: add_spm, WORDPIECE: add_wordpiece}


Tensors = dict[str, NDArray[np.float32]]


def write_family(name: str, folder: Path, seed: int = 1) -> Path:
    """Write `folder/name.gguf`. Raises ShapeError for a family whose metadata the library rejects."""
    path = folder / f"{name}.gguf"
    return write(path, name, FAMILIES[name], random_tensors(name, folder, seed))


def random_tensors(name: str, folder: Path, seed: int = 1, family: Family | None = None) -> Tensors:
    """Return a family's tensors by name; the library determines their shapes from a file in `folder`."""
    family, path, rng = family or FAMILIES[name], folder / f"{name}.header", np.random.default_rng(seed)
    shapes = tensor_shapes(write(path, name, family, {}))
    path.unlink()
    return {
        tensor: values(family, tensor, tuple(reversed(shape)), rng)
        for tensor, shape in shapes.items()
        if has(family, tensor)
    }


def write(path: Path, name: str, family: Family, tensors: Tensors) -> Path:
    """Write a model with the family's metadata and these tensors."""
    writer = header(path, name, family)
    for tensor, data in tensors.items():
        add_tensor(writer, tensor, data)
    return finish(writer, path)


def header(path: Path, name: str, family: Family) -> GGUFWriter:
    """Return a writer with the metadata and the vocabulary."""
    writer = GGUFWriter(str(path), family.architecture)
    writer.add_name(f"random {name}")
    ADDERS[family.vocabulary](writer)
    writer.add_chat_template(TEMPLATE)
    for key, value in family.metadata.items():
        add_value(writer, f"{family.architecture}.{key}", value)
    return writer


def add_value(writer: GGUFWriter, key: str, value: Value) -> None:
    """Add a metadata value with the type that the library expects."""
    match value:
        case bool():
            writer.add_bool(key, value)
        case int():
            writer.add_uint32(key, value)
        case float():
            writer.add_float32(key, value)
        case str():
            writer.add_string(key, value)
        case list() if key.endswith("ratios"):
            writer.add_key_value(key, value, GGUFValueType.ARRAY, sub_type=GGUFValueType.UINT32)
        case list():
            writer.add_array(key, value)


def add_tensor(writer: GGUFWriter, name: str, data: NDArray[np.float32]) -> None:
    """Add a tensor as a real file stores it: Q8_0 if its rows are whole blocks, floats otherwise."""
    if is_float(name, data.shape):
        writer.add_tensor(name, data)
    elif data.shape[-1] % Q8_0.weights:
        writer.add_tensor(name, data.astype(np.float16))
    else:
        kind = GGMLQuantizationType.Q8_0
        writer.add_tensor(name, quantize(data, kind), raw_dtype=kind)


def write_drafting(name: str, folder: Path, without: str = "", seed: int = 1, *, is_apart: bool = False) -> Path:
    """Write `folder/name.gguf`, without the tensors whose names begin with `without`; if `is_apart`, write the drafting
    layer alone as `folder/mtp-name.gguf`, as llama.cpp's converter does.
    """
    family, tensors = FAMILIES[name], random_tensors(name, folder, seed)
    last = f"blk.{int(str(family.metadata['block_count'])) - 1}"
    if family.architecture == "mimo2":
        parts = [tensors.pop(f"{last}.attn_{part}.weight") for part in "qkv"]
        tensors[f"{last}.attn_qkv.weight"] = np.concatenate(parts)
    if family.architecture == "deepseek4" and "nextn_predict_layers" in family.metadata:
        tensors |= entry(f"{last}.nextn", int(str(family.metadata["embedding_length"])))
    if is_apart:
        kept = {key: data for key, data in tensors.items() if key.startswith((last, "token_embd", "output"))}
        return write(folder / f"mtp-{name}.gguf", name, family, kept)
    kept = {key: data for key, data in tensors.items() if not (without and key.startswith(without))}
    return write(folder / f"{name}.gguf", name, family, kept)


def entry(prefix: str, width: int) -> Tensors:
    """Return the input tensors of a drafting layer, which the library lists only if the file has them."""
    rng = np.random.default_rng(2)
    norms = {f"{prefix}.{name}.weight": np.ones(width, dtype=np.float32) for name in ("enorm", "hnorm")}
    return norms | {f"{prefix}.eh_proj.weight": rng.standard_normal((width, 2 * width), dtype=np.float32) * width**-0.5}


HUGE = 2**31 - 1
LAYER = re.compile(r"^blk\.\d+\.")


@dataclass(frozen=True, slots=True)
class Mutation:
    """A change: a value of the metadata, or a missing kind of tensor."""

    key: str = ""
    value: Value = 0
    tensor: str = ""

    def __str__(self) -> str:
        return f"{self.key} = {self.value}" if self.key else f"without {self.tensor}"


def mutations(family: Family, tensors: Tensors) -> Iterator[Mutation]:
    """Yield all mutations of a family."""
    for key, value in family.metadata.items():
        yield from (Mutation(key, changed) for changed in others(value))
    kinds = {LAYER.sub("", name) for name in tensors if LAYER.match(name)}
    yield from (Mutation(tensor=kind) for kind in sorted(kinds))
    yield from (Mutation(tensor=name) for name in tensors if not LAYER.match(name))


def others(value: Value) -> list[Value]:
    """Return other values for an integer, or for the last integer of a list; nothing for other types."""
    if isinstance(value, list):
        *before, last = value
        return [[*before, each] for each in (0, last + 1, HUGE)] if type(last) is int else []
    return [0, value + 1, HUGE] if type(value) is int else []


def mutated(path: Path, name: str, family: Family, tensors: Tensors, mutation: Mutation) -> Path:
    """Write the family's file with that change. A layer's tensor is missing in the last layer that has it."""
    if mutation.key:
        family = replace(family, metadata={**family.metadata, mutation.key: mutation.value})
    without = [each for each in tensors if mutation.tensor and LAYER.sub("", each) == mutation.tensor][-1:]
    return write(path, name, family, {each: data for each, data in tensors.items() if each not in without})
