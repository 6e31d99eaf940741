"""Reads the header of a GGUF file strictly: metadata, and the position of each tensor.

The file may come from anyone, so every count is checked against the rest of the file and a limit before anything is
read or allocated. Knows the format; reads no weights, loads no model library, and does not know the meaning of any key.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from os import SEEK_CUR
from pathlib import Path
from typing import BinaryIO, NoReturn

import numpy as np
from numpy.typing import NDArray

from runtime.core.errors import ModelError
from runtime.models.content import note
from runtime.models.gguf_types import ARRAY, LENGTH, SCALARS, STRING, TYPES, Strings
from runtime.models.shards import shard_names

MAX_BYTES = 2**28  # bytes of a header, at most; those of vocabularies of 262k tokens have 2**24
MAX_STRINGS = 2**21  # strings in all arrays together, at most; tokens and merges of such a vocabulary are 2**20
MAX_ENTRIES = 2**16  # metadata keys, or tensors
MAX_KEY, MAX_NAME, MAX_DIMENSIONS = 2**16 - 1, 64, 4  # as in the format's description and in ggml
VERSIONS = 2, 3
PIECE = 2**16  # bytes read in one call where the length of an array is unknown

Value = int | float | str | Strings | NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor's description. `shape` has the fastest dimension first; `offset` counts from the start of the data."""

    name: str
    shape: tuple[int, ...]
    kind: str  # a name of gguf_types.TYPES
    offset: int
    n_bytes: int

    @property
    def n_values(self) -> int:
        """Number of weights in the tensor."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class Header:
    """The parsed header of a GGUF file."""

    metadata: Mapping[str, Value]
    tensors: tuple[TensorInfo, ...]
    n_file_bytes: int
    data_start: int = 0  # the position of the tensors in a single file
    # the position of each key with its value in the file
    spans: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def text(self, key: str) -> str:
        """Return a string value; "" if there is none."""
        value = self.metadata.get(key)
        return value if isinstance(value, str) else ""

    def number(self, key: str) -> int:
        """Return a count; 0 if there is none or the value is not a count."""
        value = self.metadata.get(key)
        return value if isinstance(value, int) and value > 0 else 0

    def strings(self, key: str) -> Strings:
        """Return an array of strings; empty if there is none."""
        value = self.metadata.get(key)
        return value if isinstance(value, Strings) else Strings()


def read_header(path: Path) -> Header:
    """Return the header of `path`. Raises ModelError in one sentence for any fault in it."""
    if not path.is_file():
        what = "is not a file" if path.exists() else "does not exist"
        raise ModelError(f"{path} {what}. Name a GGUF file.")
    try:
        with path.open("rb") as file:
            return note(path, parse_header(file, path.name, path.stat().st_size))
    except OSError as error:
        raise ModelError(f"{path} cannot be read ({error.strerror}). Name a GGUF file that you may read.") from error


def read_model_header(path: Path) -> Header:
    """Return the header of a model of one or more shards, of which `path` is one: the first one's metadata, all
    tensors.
    """
    headers = [read_header(path.with_name(name)) for name in shard_names(path.name)]
    if len(headers) == 1:
        return headers[0]
    tensors = tuple(tensor for header in headers for tensor in header.tensors)
    return Header(headers[0].metadata, tensors, sum(header.n_file_bytes for header in headers))


def parse_header(file: BinaryIO, name: str, size: int) -> Header:
    """Return the header at the start of an open file of `size` bytes, called `name` in errors. Raises ModelError."""
    return _Reader(file, name, size).header()


class _Reader:
    """A cursor over the file that never passes its end, nor MAX_BYTES."""

    def __init__(self, file: BinaryIO, name: str, size: int) -> None:
        self.file, self.name, self.size = file, name, size
        self.left, self.n_strings = min(size, MAX_BYTES), MAX_STRINGS

    def header(self) -> Header:
        """Return the whole header, checked against the size of the file."""
        if self._take(min(4, self.left)) != b"GGUF":
            raise ModelError(f"{self.name} is not a GGUF file. Convert the model to GGUF, or download a GGUF of it.")
        self._check_version(self._integer("I"))
        n_tensors, n_keys = self._count("tensors"), self._count("metadata keys")
        metadata: dict[str, Value] = {}
        spans: dict[str, tuple[int, int]] = {}
        for _ in range(n_keys):
            start = self.file.tell()
            key = self._name(MAX_KEY)
            if key in metadata:
                self._fail(f"the key {key[:64]!r} is there twice")
            metadata[key] = self._value(self._integer("I"))
            spans[key] = start, self.file.tell()
        tensors = tuple(self._tensor() for _ in range(n_tensors))
        start = self._check_layout(tensors, metadata.get("general.alignment", 32))
        return Header(metadata, tensors, self.size, start, spans)

    def _check_version(self, version: int) -> None:
        if version not in VERSIONS:
            is_swapped = version & 0xFFFF == 0
            what = "for big-endian machines" if is_swapped else f"of version {version}; versions 2 and 3 are supported"
            other = "one for this kind of machine" if is_swapped else "a newer one of the model"
            raise ModelError(f"{self.name} is a GGUF file {what}. Download {other}.")

    def _count(self, what: str) -> int:
        n = self._integer("Q")
        if n > MAX_ENTRIES:
            self._fail(f"it claims {n} {what}")
        return n

    def _take(self, n: int) -> bytes:
        """Return exactly the next n bytes."""
        if n > self.left:
            is_long = self.size > MAX_BYTES
            self._fail(f"its header is longer than {MAX_BYTES >> 20} MiB" if is_long else "its header ends too early")
        data = self.file.read(n)
        if len(data) < n:
            self._fail("its header ends too early")
        self.left -= n
        return data

    def _integer(self, form: str) -> int:
        return int.from_bytes(self._take(struct.calcsize("<" + form)), "little")

    def _string(self) -> bytes:
        return self._take(self._integer("Q"))

    def _name(self, most: int) -> str:
        """Return a key's or a tensor's name, which must be UTF-8."""
        data = self._string()
        if not 0 < len(data) <= most:
            self._fail(f"a name has {len(data)} bytes")
        try:
            return data.decode("utf8")
        except UnicodeDecodeError:
            self._fail("a name is not UTF-8")

    def _value(self, kind: int) -> Value:
        if kind == STRING:
            return self._string().decode("utf8", "replace")
        if kind == ARRAY:
            return self._array(self._integer("I"), self._integer("Q"))
        if kind not in SCALARS:
            self._fail(f"a value has the unknown type {kind}")
        form = "<" + SCALARS[kind]
        value: int | float = struct.unpack(form, self._take(struct.calcsize(form)))[0]
        return value

    def _array(self, kind: int, n: int) -> Value:
        if kind == STRING:
            return self._strings(n)
        if kind not in SCALARS:
            self._fail(f"an array has elements of type {kind}")
        dtype = np.dtype("<" + SCALARS[kind])
        return np.frombuffer(self._take(n * dtype.itemsize), dtype)

    def _strings(self, n: int) -> Strings:
        """Return an array of strings with checked lengths, read in pieces: a vocabulary has a quarter million."""
        self.n_strings -= n
        if self.n_strings < 0 or n * 8 > self.left:
            self._fail(f"an array claims {n} strings")
        data, at, left, length_at, width = bytearray(), 0, self.left, LENGTH.unpack_from, LENGTH.size
        for _ in range(n):
            start = at + width
            if start > len(data):
                data += self.file.read(start - len(data) + PIECE)
                if start > len(data):
                    self._fail("its header ends too early")
            at = start + length_at(data, at)[0]
            if at > left:
                self._fail("a string is longer than the header")
        self.file.seek(-len(data), SEEK_CUR)
        return Strings(n, self._take(at))

    def _tensor(self) -> TensorInfo:
        name, n_dimensions = self._name(MAX_NAME), self._integer("I")
        if not 1 <= n_dimensions <= MAX_DIMENSIONS:
            self._fail(f"the tensor {name!r} has {n_dimensions} dimensions")
        shape = tuple(self._integer("Q") for _ in range(n_dimensions))
        kind, offset = self._integer("I"), self._integer("Q")
        if kind not in TYPES:
            self._fail(
                f"the tensor {name!r} has the unknown type {kind}",
                "It may be newer than this Slipstream: update, or take another quantization",
            )
        title, n_block, n_bytes = TYPES[kind]
        if not all(shape) or prod(shape) >= 2**63 or shape[0] % n_block:
            self._fail(f"the tensor {name!r} has the impossible shape {' x '.join(map(str, shape))}")
        return TensorInfo(name, shape, title, offset, prod(shape) // n_block * n_bytes)

    def _check_layout(self, tensors: tuple[TensorInfo, ...], alignment: Value) -> int:
        """Check that tensors are in the file, aligned, disjoint and uniquely named; return where they begin."""
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            self._fail("its alignment is not a power of two")
        if len({tensor.name for tensor in tensors}) < len(tensors):
            self._fail("two tensors have one name")
        end, before = 0, ""
        for tensor in sorted(tensors, key=lambda tensor: tensor.offset):
            if tensor.offset < end:
                self._fail(f"the tensor {tensor.name!r} overlaps {before!r}")
            if tensor.offset % alignment:
                self._fail(f"the tensor {tensor.name!r} is not aligned")
            end, before = tensor.offset + tensor.n_bytes, tensor.name
        start = -(-self.file.tell() // alignment) * alignment
        if tensors and start + end > self.size:
            raise ModelError(
                f"{self.name} is incomplete: {start + end - self.size:,} of {start + end:,} bytes are missing. "
                "Download it again."
            )
        return start

    def _fail(self, what: str, remedy: str = "Download it again, from a source that you trust") -> NoReturn:
        raise ModelError(f"{self.name} is damaged: {what}. {remedy}.")
