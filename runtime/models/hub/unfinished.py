"""Downloads that were begun and not completed: a note next to the partial files names the model that they are of.

Knows files; uses no network.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import constants
from pydantic import TypeAdapter, ValidationError

from runtime.models.hub.names import HubError, split_name

NOTE = ".slipstream.json"  # suffix of a note, after the name of the model's first content
MAX_NOTE = 2**20  # bytes
NAMED = TypeAdapter(tuple[str, dict[str, int]])  # hf:owner/repo:file, and the bytes of each content by its name


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A model of which some bytes are here."""

    name: str  # hf:owner/repo:file
    n_here: int  # bytes
    size: int


def partial_of(blob: Path) -> Path:
    """Return the path of the partial file of a content."""
    return blob.with_name(f"{blob.name}.slipstream.incomplete")


def n_stored(blob: Path, size: int) -> int:
    """Return the bytes of a content that are on this machine."""
    place = blob if blob.exists() else partial_of(blob)
    return min(size, place.stat().st_size) if place.exists() else 0


@contextmanager
def noted(name: str, sizes: dict[Path, int]) -> Iterator[None]:
    """Leave a note of the model `name` while some of its contents, of these sizes, are here, but not all."""
    first = next(iter(sizes))
    note = first.with_name(f"{first.name}{NOTE}")
    with suppress(OSError):  # fetching says why nothing can be stored here
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_bytes(json.dumps([name, {blob.name: size for blob, size in sizes.items()}]).encode())
    try:
        yield
    finally:
        with suppress(OSError):
            if all(blob.exists() for blob in sizes) or not any(n_stored(*each) for each in sizes.items()):
                note.unlink()


def unfinished(cache: Path | None = None) -> list[Unfinished]:
    """Return the models of which some bytes are in the cache, by name; damaged notes are passed over."""
    found = map(read, (cache or Path(constants.HF_HUB_CACHE)).glob(f"models--*/blobs/*{NOTE}"))
    return sorted((each for each in found if each is not None and each.n_here), key=lambda each: each.name)


def read(note: Path) -> Unfinished | None:
    """Return what a note says, and how much of it is here; None if it is damaged."""
    with suppress(OSError, ValueError, ValidationError, HubError):
        if note.stat().st_size <= MAX_NOTE:
            name, sizes = NAMED.validate_json(note.read_bytes(), strict=True)
            split_name(name)
            here = [n_stored(note.with_name(blob), size) for blob, size in sizes.items()]
            return Unfinished(name, sum(here), sum(sizes.values()))
    return None
