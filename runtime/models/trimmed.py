"""Copies of draft models with a reduced vocabulary: how they are written, and which models benefit from one.

Most of the bytes that a small model reads for a token are its vocabulary's table, if that is large, and few of the
tokens are ever drafted (FR-Spec, arXiv 2502.14856; VocabTrim, arXiv 2506.22694). A copy contains the rows of some
tokens, as bytes; the vectors of the others are read from the whole file, which it names. Knows the format; loads no
model.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from runtime.core.draft import Tokens
from runtime.core.errors import DraftError, ModelError
from runtime.models.cache_layout import STATEFUL, layers_named
from runtime.models.content import state_of
from runtime.models.facts import ModelFacts
from runtime.models.gguf_types import ARRAY, STRING, TYPES
from runtime.models.header import Header, TensorInfo, read_header
from runtime.models.shards import shard_names

# tokens of a copy, at most; half as many were as fast, but covered only 85% of a letter's tokens instead of 94%
MAX_TOKENS = 32_768
MIN_TOKENS = 8192  # tokens of a copy, at least; fewer cover hardly any text
WORTH = 1.1  # least ratio of the bytes that the whole model and the copy read per token
TABLE = "token_embd.weight"
HEADS = TABLE, "output.weight", "output.bias"  # tensors with a row for each token
# With positions of several parts, vectors do not stand for tokens
PARTED = "rope.dimension_sections"
CHUNK = 2**22  # bytes copied in one piece
KEY = "slipstream.trimmed"
NUMBER, TEXT, IDS = 4, STRING, 5  # the format's types: u32, string, i32


@dataclass(frozen=True, slots=True)
class Trim:
    """A copy's record of its source file, and the tokens that it kept."""

    source: Path
    state: str  # of the source's file: see `content.state_of`
    kept: Tokens  # [n] ids, ascending

    def is_whole(self) -> bool:
        """Whether the source file is unchanged."""
        with suppress(OSError, ValueError):  # ValueError: not a valid file name
            return state_of(self.source) == self.state
        return False

    def check(self, path: Path) -> None:
        """Raise DraftError if the source file has changed; `path` is the copy's."""
        if not self.is_whole():
            raise DraftError(
                f"{path.name} lacks words that are in {self.source}, and that file is gone or has changed. Run "
                "`slipstream models pair` again"
            )


def trim_of(facts: ModelFacts | None) -> Trim | None:
    """Return a copy's record of its source; None for a whole model, and for a copy with an invalid record."""
    if facts is None or not (source := facts.header.text(f"{KEY}.source")):
        return None
    kept = facts.header.metadata.get(f"{KEY}.kept")
    if not isinstance(kept, np.ndarray) or kept.dtype != np.dtype("<i4") or not len(kept):
        return None
    if kept[0] < 0 or not (np.diff(kept) > 0).all() or len(kept) != facts.own("vocab_size"):
        return None
    return Trim(Path(source), facts.header.text(f"{KEY}.state"), kept.astype(np.int32))


def n_few(n_vocab: int) -> int:
    """Return a vocabulary size that covers most drafts: a quarter, within bounds; 0 if that is too small."""
    n = min(MAX_TOKENS, n_vocab // 4 // 64 * 64)
    return n if n >= MIN_TOKENS else 0


def n_kept(facts: ModelFacts) -> int:
    """Return the vocabulary size of a copy of that model; 0 if no copy is possible."""
    return n_few(facts.n_vocab)


def bytes_per_token(facts: ModelFacts) -> int:
    """Return the bytes of weights that a pass of the copy over one token reads."""
    if not facts.n_vocab:
        return facts.n_bytes_per_token
    tied = all(tensor.name != "output.weight" for tensor in facts.header.tensors)
    read = sum(tensor.n_bytes for tensor in facts.header.tensors if tensor.name == (TABLE if tied else "output.weight"))
    return facts.n_bytes_per_token - int(read * (1 - n_kept(facts) / facts.n_vocab))


def is_worth_it(path: Path, facts: ModelFacts) -> bool:
    """Whether a copy of the model is possible and would read clearly less."""
    if len(shard_names(path.name)) > 1 or not n_kept(facts) or layers_named(facts, STATEFUL):
        return False
    if f"{facts.architecture}.{PARTED}" in facts.header.metadata or facts.own("nextn_predict_layers"):
        return False
    worded = {tensor.name for tensor in facts.header.tensors if facts.n_vocab in tensor.shape}
    if TABLE not in worded or not worded <= {*HEADS}:
        return False
    return facts.n_bytes_per_token >= WORTH * bytes_per_token(facts)


def choose(facts: ModelFacts, counts: NDArray[np.int64], n: int | None = None) -> Tokens:
    """Return the `n` tokens of a copy, ascending: special ones first, then the most frequent, then the lowest ids.

    `counts` [n_vocab]: how often replies contained each token.
    """
    n, counts = n or n_kept(facts), counts[: facts.n_vocab].copy()
    counts[[token for token in specials(facts, n) if token < len(counts)]] = np.iinfo(np.int64).max
    order = np.lexsort((np.arange(len(counts)), -counts))
    return np.sort(order[:n]).astype(np.int32)


def specials(facts: ModelFacts, n: int) -> list[int]:
    """Return the special tokens that the header names, and all control and user-defined ones if those are few."""
    metadata = facts.header.metadata
    named = [
        value
        for key, value in metadata.items()
        if key.startswith("tokenizer.ggml.") and key.endswith("_token_id") and isinstance(value, int)
    ]
    kinds = metadata.get("tokenizer.ggml.token_type")
    marks = np.flatnonzero(np.isin(kinds, (3, 4))).tolist() if isinstance(kinds, np.ndarray) else []
    return named + (marks if len(marks) <= n // 16 else [])


def write(source: Path, path: Path, kept: Tokens) -> None:
    """Write the copy of `source` with the `kept` tokens to `path`, completely or not at all.

    Raises ModelError if the disk is full, or if the source changes during the copy.
    """
    part = path.with_name(f"{path.name}.incomplete")
    try:
        header = read_header(source)
        trim = Trim(source.absolute(), state_of(source), kept)
        with source.open("rb") as whole, part.open("wb") as file:
            for piece in pieces(whole, header, trim):
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        if not trim.is_whole():
            raise ModelError(f"{source.name} was changed while a smaller copy was made of it. Try again.")
        part.replace(path)
    except OSError as error:
        raise ModelError(
            f"A smaller copy of {source.name} could not be written to {path.parent} ({error.strerror}). Free some room "
            "there, and try again."
        ) from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def pieces(whole: BinaryIO, header: Header, trim: Trim) -> Iterator[bytes]:
    """Yield the copy's bytes, in order. Raises ModelError if the file ends too early."""
    facts = ModelFacts(header)
    tensors = [trimmed(tensor, facts.n_vocab, len(trim.kept)) for tensor in header.tensors]
    number = header.metadata.get("general.alignment")
    alignment = number if isinstance(number, int) else 32
    entries = [*own_entries(whole, header), *new_entries(facts.architecture, trim)]
    descriptions, at = b"", 0
    for tensor in tensors:
        descriptions += described(tensor, at)
        at += tensor.n_bytes + -tensor.n_bytes % alignment
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries)) + b"".join(entries) + descriptions
    yield head + bytes(-len(head) % alignment)
    for before, tensor in zip(header.tensors, tensors, strict=True):
        start = header.data_start + before.offset
        is_same = before is tensor
        yield from copied(whole, start, tensor.n_bytes) if is_same else rows_of(whole, start, before, trim.kept)
        yield bytes(-tensor.n_bytes % alignment)


def own_entries(whole: BinaryIO, header: Header) -> Iterator[bytes]:
    """Yield the metadata that a copy shares with its source, unchanged: all but the vocabulary."""
    for key, (start, end) in header.spans.items():
        if not key.startswith(("tokenizer.", KEY)) and not key.endswith(".vocab_size"):
            yield exactly(whole, start, end - start)


def new_entries(architecture: str, trim: Trim) -> Iterator[bytes]:
    """Yield the metadata of a copy alone: a vocabulary of ids without text, and its source."""
    yield entry("tokenizer.ggml.model", TEXT, string("no_vocab"))
    yield entry(f"{architecture}.vocab_size", NUMBER, struct.pack("<I", len(trim.kept)))
    yield entry(f"{KEY}.source", TEXT, string(str(trim.source)))
    yield entry(f"{KEY}.state", TEXT, string(trim.state))
    yield entry(f"{KEY}.kept", ARRAY, struct.pack("<IQ", IDS, len(trim.kept)) + trim.kept.astype("<i4").tobytes())


def entry(key: str, kind: int, value: bytes) -> bytes:
    """Return a key and its value in the format."""
    return string(key) + struct.pack("<I", kind) + value


def string(text: str) -> bytes:
    """Return a string in the format."""
    data = text.encode("utf8", "surrogateescape")
    return struct.pack("<Q", len(data)) + data


def trimmed(tensor: TensorInfo, n_vocab: int, n: int) -> TensorInfo:
    """Return the tensor of the copy: the same, or with `n` rows."""
    if tensor.name not in HEADS or tensor.shape[-1] != n_vocab:
        return tensor
    return TensorInfo(tensor.name, (*tensor.shape[:-1], n), tensor.kind, 0, tensor.n_bytes // n_vocab * n)


def described(tensor: TensorInfo, at: int) -> bytes:
    """Return the header's description of a tensor whose bytes begin at `at`."""
    kind = next(number for number, (name, _, _) in TYPES.items() if name == tensor.kind)
    n = len(tensor.shape)
    return string(tensor.name) + struct.pack(f"<I{n}QIQ", n, *tensor.shape, kind, at)


def copied(whole: BinaryIO, start: int, n_bytes: int) -> Iterator[bytes]:
    """Yield a tensor's bytes, from `start` on, in pieces."""
    for at in range(start, start + n_bytes, CHUNK):
        yield exactly(whole, at, min(CHUNK, start + n_bytes - at))


def rows_of(whole: BinaryIO, start: int, tensor: TensorInfo, kept: Tokens) -> Iterator[bytes]:
    """Yield the rows of the `kept` tokens in a tensor whose bytes begin at `start`, in pieces."""
    n_words = tensor.shape[-1]
    n_bytes = tensor.n_bytes // n_words
    most = max(1, CHUNK // n_bytes)
    for first in range(0, n_words, most):
        n = min(most, n_words - first)
        data = exactly(whole, start + first * n_bytes, n * n_bytes)
        wanted = kept[(kept >= first) & (kept < first + n)] - first
        yield np.frombuffer(data, np.uint8).reshape(n, n_bytes)[wanted].tobytes()


def exactly(file: BinaryIO, start: int, n: int) -> bytes:
    """Return `n` bytes of a file. Raises ModelError if it has fewer."""
    file.seek(start)
    data = file.read(n)
    if len(data) < n:
        raise ModelError("The model's file became shorter while a smaller copy was made of it. Try again.")
    return data
