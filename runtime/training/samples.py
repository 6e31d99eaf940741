"""Stores a target's texts on disk with what it gives for them: its most likely tokens at each position, and the states
that a head reads. One `.npz` file per text, complete or absent, which checkpoints are too.

Files are read without trust: they contain nothing but arrays, whose sizes and token ids must be possible. Loads no
model and no torch.
"""

from __future__ import annotations

import struct
import zlib
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from runtime.core.draft import Tokens
from runtime.core.outside import read_plain
from runtime.training.conditions import TrainingError
from runtime.training.place import write_whole

MAX_TEXT_TOKENS = 512  # tokens of a text that are read, at most
N_LIKELY = 32  # of the target's tokens at a position, whose probabilities are stored
HELD_OUT = 5  # one of this many texts is only measured on
UNREADABLE = (
    OSError, EOFError, RuntimeError, ValueError, TypeError, LookupError, MemoryError, BadZipFile, struct.error,
    zlib.error,
)  # fmt: skip
Ids = NDArray[np.int32]
Halves = NDArray[np.float16]


class Sample(NamedTuple):
    """A prompt with the target's reply, which begins at `start`, and what the target gives for it once it is read.

    Row i of `ids` and `chances` is for the token at `start` + i.
    """

    tokens: Tokens  # [n]
    start: int  # at least 1
    ids: Ids | None = None  # [n - start, N_LIKELY or the whole vocabulary], the most likely first
    chances: Halves | None = None  # log probabilities
    states: Halves | None = None  # [n, values], if a head reads them

    @property
    def is_readable(self) -> bool:
        """Whether it has a reply long enough to learn from."""
        return 1 <= self.start <= min(len(self.tokens), MAX_TEXT_TOKENS) - 8

    @property
    def key(self) -> str:
        """Hash that identifies the text."""
        return sha256(self.tokens.astype("<i4").tobytes()).hexdigest()

    @property
    def is_held_out(self) -> bool:
        """Whether a head that learns is only measured on it. The same text always is, or never."""
        return int(self.key[:8], 16) % HELD_OUT == 0


def bytes_per_token(n_values: int) -> int:
    """Return the bytes on disk per token, in its text and its sample with `n_values` values of states."""
    return 4 + 4 + N_LIKELY * (4 + 2) + 2 * n_values


class Samples:
    """The samples in a folder, by name, of a target with `n_vocab` tokens."""

    def __init__(self, folder: Path, n_vocab: int, n_values: int = 0) -> None:
        """`n_values` is the number of values of a token's states; 0 for samples without."""
        self.folder, self.n_vocab, self.n_values = folder, n_vocab, n_values

    def path(self, name: str) -> Path:
        """Return the path of a sample, which need not exist."""
        return self.folder / f"{name}.npz"

    def names(self) -> list[str]:
        """Return the names of the stored samples, in order."""
        return sorted(path.stem for path in self.folder.glob("*.npz"))

    def write(self, name: str, sample: Sample) -> None:
        """Store a sample. Raises TrainingError if it cannot be written."""
        write_arrays(self.path(name), {key: part for key, part in sample._asdict().items() if part is not None})

    def read(self, name: str) -> Sample:
        """Return a sample. Raises TrainingError, once it is removed, if it is missing or damaged."""
        try:
            found: dict[str, Any] = read_arrays(self.path(name))
            sample = Sample(**found | {"start": int(found["start"])})
            self._check(sample)
        except UNREADABLE as error:
            self.path(name).unlink(missing_ok=True)
            raise TrainingError(
                f"{self.path(name).name} of the training in {self.folder} was damaged and is removed. Run the same "
                "command again: its part is made again, and the rest is kept."
            ) from error
        return sample

    def _check(self, sample: Sample) -> None:
        """Raise ValueError for a sample that cannot be of this target."""
        n, start, n_values = len(sample.tokens), sample.start, self.n_values
        rows = n - start, min(N_LIKELY, self.n_vocab)
        shapes = [(n,), rows, rows, (n, n_values)]
        kinds = np.int32, np.int32, np.float16, np.float16
        n_parts = 1 if sample.ids is None else 4 if n_values else 3  # 1: a text that is not read yet
        parts = [part for part in (sample.tokens, *sample[2:]) if part is not None]
        if len(parts) != n_parts or not 1 <= start <= n:
            raise ValueError("no text")
        for part, shape, kind in zip(parts, shapes, kinds, strict=False):
            if part.shape != shape or part.dtype != kind:
                raise ValueError("wrong sizes")
            if kind == np.int32 and not ((part >= 0) & (part < self.n_vocab)).all():
                raise ValueError("impossible tokens")


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file, whose checksums are compared. Raises one of UNREADABLE."""
    with np.load(BytesIO(read_plain(path)), allow_pickle=False) as found:
        return {name: found[name] for name in found.files}


def write_arrays(path: Path, arrays: dict[str, Any]) -> None:
    """Write a file for the user alone, completely or not at all. Raises TrainingError on failure."""
    data = BytesIO()
    np.savez(data, **arrays)
    try:
        write_whole(path, data.getbuffer())
    except OSError as error:
        raise not_written(path.parent, error) from error


def not_written(folder: Path, error: OSError) -> TrainingError:
    """Return the error for a training's file that cannot be written."""
    if not folder.is_dir():
        return TrainingError("The progress so far was removed meanwhile, so nothing is kept.")
    return TrainingError(
        f"The progress cannot be written to {folder} ({error.strerror or error}). Free some room there and run "
        "the same command again: it resumes where it stopped."
    )
