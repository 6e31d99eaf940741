"""Stores a target's texts and samples on disk: token ids, its most likely tokens at each position, and the states that
a head reads. One file per text, complete or absent.

Files are read without trust: their size must match their first numbers, and every number must be possible. Knows arrays
and files; loads no model and no torch.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from runtime.core.draft import Tokens
from runtime.models.plain_file import read_plain
from runtime.training.extra import TrainingError

MAX_TEXT_TOKENS = 512  # tokens of a text that are read, at most
N_LIKELY = 32  # of the target's tokens at a position, whose probabilities are stored
PLACE = N_LIKELY * (4 + 2)  # bytes per position
ID, HALF = np.dtype("<i4"), np.dtype("<f2")  # on disk


class Text(NamedTuple):
    """Token ids of a prompt and the target's reply."""

    tokens: Tokens  # [n] int32
    start: int  # where the reply begins, at least 1

    @property
    def is_readable(self) -> bool:
        """Whether it has a reply long enough to learn from."""
        return 1 <= self.start <= min(len(self.tokens), MAX_TEXT_TOKENS) - 8


@dataclass(frozen=True, slots=True)
class Sample:
    """A text and the target's results for it. Row i of `ids` and `chances` is for the token at `start` + i."""

    tokens: Tokens  # [n]
    start: int
    ids: NDArray[np.int32]  # [n - start, N_LIKELY or the whole vocabulary], the most likely first
    chances: NDArray[np.float16]  # log probabilities
    states: NDArray[np.float16] | None  # [n, values], if a head reads them


def bytes_per_token(n_values: int) -> int:
    """Return the bytes on disk per token, in its text and its sample with `n_values` values of states."""
    return 4 + 4 + PLACE + 2 * n_values


class Texts:
    """The texts in a folder, by name, of a target with `n_vocab` tokens."""

    def __init__(self, folder: Path, n_vocab: int) -> None:
        self.folder, self.n_vocab = folder, n_vocab

    def path(self, name: str) -> Path:
        """Return the path of a text, which need not exist."""
        return self.folder / f"{name}.text"

    def names(self) -> list[str]:
        """Return the names of the stored texts, in order."""
        return sorted(path.stem for path in self.folder.glob("*.text"))

    def write(self, name: str, text: Text) -> None:
        """Store a text. Raises TrainingError if it cannot be written."""
        write_whole(self.path(name), np.array([text.start, *text.tokens], dtype=ID).tobytes())

    def read(self, name: str) -> Text | None:
        """Return a text, or None if it is missing or invalid."""
        with suppress(OSError, ValueError):
            start, *tokens = np.frombuffer(read_plain(self.path(name)), dtype=ID).tolist()
            text = Text(np.array(tokens, dtype=np.int32), start)
            if 1 <= start <= len(tokens) and are_words(text.tokens, self.n_vocab):
                return text
        return None


class Samples:
    """The samples in a folder, by number, of a target with `n_vocab` tokens; `n_values` per state, 0 for none."""

    def __init__(self, folder: Path, n_vocab: int, n_values: int) -> None:
        self.folder, self.n_vocab, self.n_values = folder, n_vocab, n_values

    def path(self, number: int) -> Path:
        """Return the path of a sample, which need not exist."""
        return self.folder / f"{number:06}.sample"

    def numbers(self) -> list[int]:
        """Return the numbers of the stored samples, ascending."""
        return sorted(int(path.stem) for path in self.folder.glob("*.sample") if path.stem.isdecimal())

    def write(self, number: int, sample: Sample) -> None:
        """Store a sample. Raises TrainingError if it cannot be written."""
        head = np.array([len(sample.tokens), sample.start], dtype=ID)
        data = b"".join(each.astype(ID).tobytes() for each in (head, sample.tokens, sample.ids))
        halves = [sample.chances] if sample.states is None else [sample.chances, sample.states]
        write_whole(self.path(number), data + b"".join(each.astype(HALF).tobytes() for each in halves))

    def read(self, number: int) -> Sample:
        """Return a sample. Raises TrainingError if it is damaged."""
        path = self.path(number)
        try:
            return self._parsed(read_plain(path))
        except (OSError, ValueError) as error:
            raise damaged(path) from error

    def _parsed(self, data: bytes) -> Sample:
        """Return the sample in `data`. Raises ValueError if it is invalid."""
        n, start = np.frombuffer(data[: 2 * ID.itemsize], dtype=ID).tolist()
        n_likely, n_values = min(N_LIKELY, self.n_vocab), self.n_values
        if not 1 <= start < n <= MAX_TEXT_TOKENS:
            raise ValueError("no text")
        sizes = [2, n, (n - start) * n_likely, (n - start) * n_likely, n * n_values]
        ends = np.cumsum(np.multiply(sizes, [ID.itemsize] * 3 + [HALF.itemsize] * 2)).tolist()
        if ends[-1] != len(data):
            raise ValueError("cut off")
        tokens, ids = (np.frombuffer(data[ends[i] : ends[i + 1]], dtype=ID) for i in range(2))
        chances, states = (np.frombuffer(data[ends[i] : ends[i + 1]], dtype=HALF) for i in range(2, 4))
        if not (are_words(tokens, self.n_vocab) and are_words(ids, self.n_vocab)) or (chances > 0).any():
            raise ValueError("invalid tokens or probabilities")
        rows = n - start, n_likely
        shown = states.reshape(n, n_values) if n_values else None
        return Sample(tokens, start, ids.reshape(rows), chances.reshape(rows), shown)


def are_words(ids: NDArray[np.int32], n_vocab: int) -> bool:
    """Whether all ids are in the target's vocabulary."""
    return bool(((ids >= 0) & (ids < n_vocab)).all())


def write_whole(path: Path, data: bytes) -> None:
    """Write a file for the user alone, completely or not at all. Raises TrainingError on failure."""
    new = path.with_suffix(".new")
    try:
        new.touch(0o600)
        new.write_bytes(data)
        new.replace(path)
    except OSError as error:
        discard(new)
        raise not_written(path.parent, error) from error


def discard(path: Path) -> None:
    """Remove a file, if possible."""
    with suppress(OSError):
        path.unlink()


def not_written(folder: Path, error: OSError) -> TrainingError:
    """Return the error for a training's file that cannot be written."""
    if not folder.is_dir():
        return TrainingError("The progress so far was removed meanwhile, so nothing is kept.")
    return TrainingError(
        f"The progress cannot be written to {folder} ({error.strerror or error}). Free some room there and run "
        "the same command again: it resumes where it stopped."
    )


def damaged(path: Path) -> TrainingError:
    """Remove a damaged file so that it is created again, and return the error about it."""
    discard(path)
    return TrainingError(
        f"{path.name} of the training in {path.parent} was damaged and is removed. Run the same command again: its "
        "part is made again, and the rest is kept."
    )
