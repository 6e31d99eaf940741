"""What the target says to a text that it wrote, kept on disk: token ids, its likeliest tokens at each place, and the
states that a head reads. One file for each text, whole or not there.

Knows arrays and files; loads no model and no torch.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from runtime.core.draft import Tokens
from runtime.training.extra import TrainingError

N_LIKELY = 32  # of the target's tokens at a place, whose chances are kept
PLACE = N_LIKELY * (4 + 2)  # bytes


class Text(NamedTuple):
    """Token ids that a target read and wrote."""

    tokens: Tokens  # [n] int32
    start: int  # where the reply begins, at least 1


@dataclass(frozen=True, slots=True)
class Sample:
    """A text and what the target says of it. Row i of `ids` and `chances` is for the token at `start` + i."""

    tokens: Tokens  # [n]
    start: int
    ids: NDArray[np.int32]  # [n - start, N_LIKELY], the likeliest first
    chances: NDArray[np.float16]  # their logarithms
    states: NDArray[np.float16] | None  # [n, values], where a head is to read them


def bytes_per_token(n_states: int) -> int:
    """Bytes on disk that a token takes, with so many values of states."""
    return 4 + PLACE + 2 * n_states


class Samples:
    """The samples in a folder, by number."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, number: int) -> Path:
        """Where a sample is, or would be."""
        return self.folder / f"{number:06}.npz"

    def numbers(self) -> list[int]:
        """Those that are there, ascending."""
        return sorted(int(path.stem) for path in self.folder.glob("*.npz"))

    def write(self, number: int, sample: Sample) -> None:
        """Keeps a sample, whole or not at all. Raises TrainingError where the disk is full."""
        arrays = {"tokens": sample.tokens, "start": np.array(sample.start), "ids": sample.ids}
        arrays |= {"chances": sample.chances} | ({} if sample.states is None else {"states": sample.states})
        path = self.path(number)
        new = path.with_suffix(f".{os.getpid()}")
        try:
            with new.open("wb") as file:
                np.savez(file, **arrays)  # type: ignore[arg-type]  # its stubs take the names for another argument
            new.replace(path)
        except OSError as error:
            new.unlink(missing_ok=True)
            raise no_room(self.folder, error) from error

    def read(self, number: int) -> Sample:
        """One of them. Raises TrainingError where it was damaged."""
        try:
            with np.load(self.path(number)) as found:
                states = found.get("states")
                return Sample(found["tokens"], int(found["start"]), found["ids"], found["chances"], states)
        except (OSError, ValueError, KeyError, EOFError) as error:
            self.path(number).unlink(missing_ok=True)
            raise TrainingError(
                f"A sample of the training in {self.folder} was damaged and is removed. Give the same command again."
            ) from error


def no_room(folder: Path, error: OSError) -> TrainingError:
    """What to say where something cannot be written."""
    return TrainingError(
        f"What was learned cannot be written to {folder} ({error.strerror}). Free some room there and give the same "
        "command again: it goes on where it was."
    )
