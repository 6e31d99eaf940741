"""Writes a tiny model of a family."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFValueType, GGUFWriter
from gguf.quants import quantize
from numpy.typing import NDArray

from bench.instruments.architectures.families import FAMILIES
from bench.instruments.architectures.family import Family, Value
from bench.instruments.architectures.shapes import tensor_shapes
from bench.instruments.architectures.tensors import has, is_float, values
from bench.instruments.architectures.vocabularies import ADDERS, TEMPLATE
from bench.instruments.shapes import Q8_0, finish

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
