"""What tells a model's file from another one under the same name, with the same size and time: samples of its content.

A header is hashed at both ends, where settings and the table of tensors are; it and each tensor also at regular steps.
Takes a millisecond for gigabytes. A change of a few bytes between the samples is only noticed by the file's time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from runtime.core.errors import ModelError
from runtime.core.outside import require_plain
from runtime.models.shards import shard_names

if TYPE_CHECKING:
    from runtime.models.header import Header

SAMPLE = 512  # bytes
MOST = 1024  # samples of a file besides those at the ends of tensors, at most
ENDS = 2**16  # bytes that are hashed at both ends of a header

Status = tuple[int, ...]
Places = NDArray[np.int64]  # [n, 2] position and length in bytes of the header, and of each tensor
_known: dict[Path, tuple[Status, Places]] = {}  # of the headers that this process has read, as that is slow


def status_of(path: Path) -> Status:
    """Return numbers of which one changes whenever a file is written or replaced. Raises OSError.

    They are of use within a process only: the last one changes also when a file is renamed or linked.
    """
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def state_of(path: Path) -> str:
    """Return a key of the sizes, times and contents of a model's files, of which `path` is one. Raises OSError."""
    facts = [(status[1:3], sampled(part, status)) for part, status in parts_of(path)]
    return blake2b(repr(facts).encode(), digest_size=16).hexdigest()


def content_of(path: Path) -> str:
    """Return a key of the contents alone of a model's files, of which `path` is one. Raises OSError."""
    return blake2b("".join(sampled(*part) for part in parts_of(path)).encode(), digest_size=32).hexdigest()


def parts_of(path: Path) -> list[tuple[Path, Status]]:
    """Return the files of a model that are there, and their status. Raises OSError if `path` is not."""
    parts = [path.with_name(name).absolute() for name in shard_names(path.name)]
    return [(part, status_of(part)) for part in parts if part.name == path.name or part.exists()]


@lru_cache(maxsize=1024)
def sampled(path: Path, status: Status) -> str:
    """Return a hash of samples of a file with that status. Raises OSError."""
    require_plain(path)
    sums = blake2b(digest_size=16)
    places = places_in(path, status)
    head = int(places[0].sum())
    with path.open("rb", buffering=0) as file:
        for at, n in ((0, min(ENDS, head)), (max(0, head - ENDS), min(ENDS, head)), *samples(places.tolist())):
            file.seek(at)
            sums.update(file.read(n))
    return sums.hexdigest()


def samples(places: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield position and length of samples: of both ends of each place, and at regular steps between."""
    places = list(places)
    step = max(SAMPLE, sum(n for _, n in places) // MOST)
    for start, n in places:
        last = max(start, start + n - SAMPLE)
        yield from ((at, min(n, SAMPLE)) for at in (*range(start, last, step), last))


def places_in(path: Path, status: Status) -> Places:
    """Return the places in a file; for one that is no valid model, the whole of it. Raises OSError."""
    from runtime.models.header import read_header  # which calls `note`

    if _known.get(path, ((), None))[0] != status:
        try:
            read_header(path)
        except ModelError:
            _known[path] = status, np.array([[0, status[1]]])
    noted, places = _known[path]
    return places if noted == status else np.array([[0, status[1]]])  # it is being written


def note(path: Path, header: Header) -> Header:
    """Remember the places in a file whose header was read, and return it. Raises OSError."""
    start = header.data_start
    tensors = [(start + tensor.offset, tensor.n_bytes) for tensor in header.tensors]
    _known[path.absolute()] = status_of(path), np.array([(0, start), *tensors], np.int64)
    return header
