"""Texts that a target wrote, and what it says of them, kept on disk: token ids, its likeliest tokens at each place, and
the states that a head reads. One file for each text, whole or not there.

Files are read without trust: their size has to be what their first numbers say, and every number has to be possible.
Knows arrays and files; loads no model and no torch.
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

LONGEST = 512  # tokens of a text that are read
N_LIKELY = 32  # of the target's tokens at a place, whose chances are kept
PLACE = N_LIKELY * (4 + 2)  # bytes
ID, HALF = np.dtype("<i4"), np.dtype("<f2")  # on disk


class Text(NamedTuple):
    """Token ids that a target read and wrote."""

    tokens: Tokens  # [n] int32
    start: int  # where the reply begins, at least 1

    @property
    def is_readable(self) -> bool:
        """Has it a reply that a draft can learn from?"""
        return 1 <= self.start <= min(len(self.tokens), LONGEST) - 8


@dataclass(frozen=True, slots=True)
class Sample:
    """A text and what the target says of it. Row i of `ids` and `chances` is for the token at `start` + i."""

    tokens: Tokens  # [n]
    start: int
    ids: NDArray[np.int32]  # [n - start, N_LIKELY or all words], the likeliest first
    chances: NDArray[np.float16]  # their logarithms
    states: NDArray[np.float16] | None  # [n, values], where a head is to read them


def bytes_per_token(n_values: int) -> int:
    """Bytes on disk that a token takes, in its text and its sample with so many values of states."""
    return 4 + 4 + PLACE + 2 * n_values


class Texts:
    """The texts in a folder, by name, of a target with so many words."""

    def __init__(self, folder: Path, n_vocab: int) -> None:
        self.folder, self.n_vocab = folder, n_vocab

    def path(self, name: str) -> Path:
        """Where a text is, or would be."""
        return self.folder / f"{name}.text"

    def names(self) -> list[str]:
        """Those that are there, in order."""
        return sorted(path.stem for path in self.folder.glob("*.text"))

    def write(self, name: str, text: Text) -> None:
        """Keeps a text. Raises TrainingError where it cannot be written."""
        write_whole(self.path(name), np.array([text.start, *text.tokens], dtype=ID).tobytes())

    def read(self, name: str) -> Text | None:
        """One of them; None where there is none that is sound."""
        with suppress(OSError, ValueError):
            start, *tokens = np.frombuffer(read_plain(self.path(name)), dtype=ID).tolist()
            text = Text(np.array(tokens, dtype=np.int32), start)
            if 1 <= start <= len(tokens) and are_words(text.tokens, self.n_vocab):
                return text
        return None


class Samples:
    """The samples in a folder, by number, of a target with so many words; `n_values` of a state, 0 for none."""

    def __init__(self, folder: Path, n_vocab: int, n_values: int) -> None:
        self.folder, self.n_vocab, self.n_values = folder, n_vocab, n_values

    def path(self, number: int) -> Path:
        """Where a sample is, or would be."""
        return self.folder / f"{number:06}.sample"

    def numbers(self) -> list[int]:
        """Those that are there, ascending."""
        return sorted(int(path.stem) for path in self.folder.glob("*.sample") if path.stem.isdecimal())

    def write(self, number: int, sample: Sample) -> None:
        """Keeps a sample. Raises TrainingError where it cannot be written."""
        head = np.array([len(sample.tokens), sample.start], dtype=ID)
        data = b"".join(each.astype(ID).tobytes() for each in (head, sample.tokens, sample.ids))
        halves = [sample.chances] if sample.states is None else [sample.chances, sample.states]
        write_whole(self.path(number), data + b"".join(each.astype(HALF).tobytes() for each in halves))

    def read(self, number: int) -> Sample:
        """One of them. Raises TrainingError where it was damaged."""
        path = self.path(number)
        try:
            return self._parsed(read_plain(path))
        except (OSError, ValueError) as error:
            raise damaged(path) from error

    def _parsed(self, data: bytes) -> Sample:
        """Raises ValueError for what was not written here."""
        n, start = np.frombuffer(data[: 2 * ID.itemsize], dtype=ID).tolist()
        n_likely, n_values = min(N_LIKELY, self.n_vocab), self.n_values
        if not 1 <= start < n <= LONGEST:
            raise ValueError("no text")
        sizes = [2, n, (n - start) * n_likely, (n - start) * n_likely, n * n_values]
        ends = np.cumsum(np.multiply(sizes, [ID.itemsize] * 3 + [HALF.itemsize] * 2)).tolist()
        if ends[-1] != len(data):
            raise ValueError("cut off")
        tokens, ids = (np.frombuffer(data[ends[i] : ends[i + 1]], dtype=ID) for i in range(2))
        chances, states = (np.frombuffer(data[ends[i] : ends[i + 1]], dtype=HALF) for i in range(2, 4))
        if not (are_words(tokens, self.n_vocab) and are_words(ids, self.n_vocab)) or (chances > 0).any():
            raise ValueError("no words, or no chances")
        rows = n - start, n_likely
        shown = states.reshape(n, n_values) if n_values else None
        return Sample(tokens, start, ids.reshape(rows), chances.reshape(rows), shown)


def are_words(ids: NDArray[np.int32], n_vocab: int) -> bool:
    """Does the target have all of these tokens?"""
    return bool(((ids >= 0) & (ids < n_vocab)).all())


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file for the user alone, whole or not at all. Raises TrainingError where that is not possible."""
    new = path.with_suffix(".new")
    try:
        new.touch(0o600)
        new.write_bytes(data)
        new.replace(path)
    except OSError as error:
        discard(new)
        raise not_written(path.parent, error) from error


def discard(path: Path) -> None:
    """Removes a file, if that is possible."""
    with suppress(OSError):
        path.unlink()


def not_written(folder: Path, error: OSError) -> TrainingError:
    """What to say where a file of a training cannot be written."""
    if not folder.is_dir():
        return TrainingError("What was learned so far was wiped meanwhile, so nothing is kept.")
    return TrainingError(
        f"What was learned cannot be written to {folder} ({error.strerror or error}). Free some room there and give "
        "the same command again: it goes on where it was."
    )


def damaged(path: Path) -> TrainingError:
    """What to say of a file that is not as it was written, which is removed so that it is made anew."""
    discard(path)
    return TrainingError(
        f"{path.name} of the training in {path.parent} was damaged and is removed. Give the same command again: what "
        "it held is made anew, and the rest stays."
    )
