"""The prompt cache on disk, so that a prompt is read only once: one file per state, and an index.

A state that is lost, damaged or cannot be written only costs reading the prompt again. The files hold users' texts, so
they are closed to other users (0700, 0600). Opens no model.
"""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
import time
import zlib
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from platformdirs import user_cache_path

from runtime.backends.stored.checkpoints import Checkpoint
from runtime.backends.stored.prefix_index import EMPTY, Entry, PrefixIndex
from runtime.backends.stored.saved_states import SavedState
from runtime.core.draft import Adapters, Tokens, common_prefix
from runtime.core.outside import require_plain
from runtime.core.private_files import make_private_folder, own_files, remove_files

CHUNK = 2**22  # bytes written at a time
LEFT_SECONDS = 3600.0  # age after which an unfinished file counts as abandoned
DISK_SHARE = 0.1  # of the free disk space, which states may use
OURS = r"slipstream-(\d+\.state|[\d-]+\.part|index-2\.sqlite(-journal)?)"  # names of files that are made here
FIRST_RATE = 3e8  # bytes per second: assumed reading speed until a file was read

log = logging.getLogger(__name__)
T = TypeVar("T")


def folder() -> Path:
    """Return the folder of all states."""
    return user_cache_path("slipstream") / "prompts"


def forget() -> int:
    """Remove all states and return the number of bytes freed. Raises SlipstreamError."""
    return remove_files(
        own_files(folder(), OURS), f"Close Slipstream where it runs, or remove the folder {folder()} yourself."
    )


def size(place: Path) -> int:
    """Return the bytes of all states in a folder, and of their index."""
    n_bytes = 0
    for path in own_files(place, OURS):
        with suppress(OSError):  # gone meanwhile
            n_bytes += path.stat().st_size
    return n_bytes


class PrefixStore:
    """The states of one model in a folder that all models share; all states together take at most `max_bytes`.

    `model` identifies everything that makes a state valid: file, build, layout of weights, cache types, device. Methods
    may be called from several threads and processes.
    """

    def __init__(self, model: str, max_bytes: int, place: Path | None = None, grain: int = 1) -> None:
        self.place, self._max_bytes = place or folder(), max_bytes
        self._index = PrefixIndex(self.place, model, grain)
        self.bytes_per_second, self.is_writable = FIRST_RATE, True
        self._parts, self._given = count(), dict[int, SavedState]()
        if self.place.exists():
            self._tried(self._sweep, None)

    def _tried(self, do: Callable[[], T], otherwise: T) -> T:
        """Return the result of `do`, or `otherwise` where files cannot be used. A damaged index is deleted."""
        try:
            return do()
        except sqlite3.OperationalError:  # locked for long, or it cannot be written
            return otherwise
        except (sqlite3.DatabaseError, ValueError, TypeError, OverflowError):
            with suppress(OSError):
                self._index.path.unlink()
            return otherwise
        except OSError:
            return otherwise

    def _path(self, number: int) -> Path:
        return self.place / f"slipstream-{int(number)}.state"

    def _sweep(self) -> None:
        """Remove unfinished files of processes that ended, files without an entry, and entries without a file.

        States in whose use a process ended are removed too: their inside may be wrong, though their checksum is right.
        """
        for number in self._index.fatal():
            self._remove(number)
        numbers = {self._path(number): number for number in self._index.numbers()}
        files = {path for path in own_files(self.place, OURS) if path.suffix in (".state", ".part")}
        for path in numbers.keys() - files:
            self._index.remove(numbers[path])
        for path in files - numbers.keys():
            with suppress(OSError):
                if not 0 <= time.time() - path.stat().st_mtime < LEFT_SECONDS:
                    path.unlink()

    def _alike(self, tokens: Tokens, adapters: Adapters) -> list[Entry]:
        return self._tried(partial(self._index.alike, tokens, adapters), [])

    def find(self, context: Tokens, is_pure: bool = False, adapters: Adapters = ()) -> Entry | None:
        """Return the state with these adapters that has the most leading tokens of `context[:-1]`, or None.

        With `is_pure`, only tokens whose cells were computed by prefill count.
        """
        found = [each.pure if is_pure else each for each in self._alike(context, adapters)]
        best = max(found, key=lambda each: each.saved.n_shared(context, is_pure), default=None)
        return best if best and best.saved.n_shared(context, is_pure) else None

    def n_stored(self, tokens: Tokens, adapters: Adapters = ()) -> int:
        """Return the largest number of leading tokens that one state with these adapters has."""
        context = np.append(tokens, np.int32(0))
        return max((each.saved.n_shared(context, exact=False) for each in self._alike(tokens, adapters)), default=0)

    def read(self, entry: Entry) -> SavedState | None:
        """Return the state with its bytes. If they differ from the bytes written, remove the state and return None."""
        began, data = time.perf_counter(), EMPTY
        with suppress(OSError, MemoryError, ValueError):  # ValueError: an empty file
            require_plain(self._path(entry.number))
            data = np.memmap(self._path(entry.number), np.uint8, "r")  # a copy would take longer than reading it
        if len(data) != entry.n_bytes or zlib.crc32(data.data) != entry.crc:
            data = EMPTY  # Windows removes no file that is mapped
            self._tried(partial(self._remove, entry.number), None)
            return None
        self.bytes_per_second = len(data) / max(1e-6, time.perf_counter() - began)
        self._tried(partial(self._index.note_use, entry.number), None)
        state, *parts = np.split(data, np.cumsum(entry.sizes)[:-1])
        known = entry.saved.checkpoints
        checkpoints = known and tuple(Checkpoint(each.n, part) for each, part in zip(known, parts, strict=True))
        found = replace(entry.saved, state=state, checkpoints=checkpoints)
        self._given[entry.number] = found
        return found

    def settle(self, refused: Collection[SavedState], has_failed: bool) -> None:
        """Record how a reply ended: the states that were read for it are removed where llama.cpp `refused` them, or
        where it failed.
        """
        for number, state in self._given.items():
            is_wrong = has_failed or any(state is each for each in refused)
            self._tried(partial(self._remove if is_wrong else self._index.settle, number), None)
        self._given.clear()

    def write(self, saved: SavedState, token_seconds: float, pause: Callable[[], object]) -> bool:
        """Store a state, whole or not at all, with a `pause` between chunks. Return whether it is stored.

        States that it extends are removed, and others where there is no room. Raises nothing: once the disk cannot be
        written, nothing more is written.
        """
        if not self.is_writable:
            return False
        part = self.place / f"slipstream-{os.getpid()}-{id(self)}-{next(self._parts)}.part"
        try:
            return self._tried(partial(self._write, part, saved, token_seconds, pause), False)
        finally:
            with suppress(OSError):
                part.unlink(missing_ok=True)

    def _write(self, part: Path, saved: SavedState, token_seconds: float, pause: Callable[[], object]) -> bool:
        parts = [saved.state, *(each.state for each in saved.checkpoints or ())]
        sizes = tuple(map(len, parts))
        try:
            make_private_folder(self.place)
            if not self._makes_room(sum(sizes)):
                return False
            crc = written(part, parts, pause)
        except OSError as error:
            self.is_writable = False
            log.warning("Prompts are no longer kept on disk: %s cannot be written (%s).", self.place, error.strerror)
            return False
        replaced = [each for each in self._alike(saved.tokens, saved.adapters) if continues(saved, each)]
        entry = Entry(saved, sizes, crc, token_seconds)
        self._index.add(entry, lambda number: part.replace(self._path(number)), [each.number for each in replaced])
        for each in replaced:
            self._unlink(each.number)
        return True

    def _makes_room(self, n_bytes: int) -> bool:
        """Remove states until `n_bytes` more fit. Return whether they do. Raises OSError and sqlite3.Error."""
        room = min(self._max_bytes, int(DISK_SHARE * (shutil.disk_usage(self.place).free + size(self.place))))
        while n_bytes <= room and self._index.n_bytes() + n_bytes > room:
            oldest = self._index.oldest()
            if oldest is None:
                break
            self._remove(oldest)
        return n_bytes <= room

    def _remove(self, number: int) -> None:
        self._index.remove(number)
        self._unlink(number)

    def _unlink(self, number: int) -> None:
        with suppress(OSError):  # gone, or in use, where Windows removes nothing: then a later sweep removes it
            self._path(number).unlink()


def continues(saved: SavedState, older: Entry) -> bool:
    """Return whether a state can restore everything that an older one can, for any reply."""
    known, n_exact = older.saved.tokens, older.saved.n_exact
    can_be_cut = saved.checkpoints is None and older.saved.checkpoints is None
    return can_be_cut and common_prefix(saved.tokens, known) == len(known) and n_exact <= saved.n_exact


def written(path: Path, parts: list[NDArray[np.uint8]], pause: Callable[[], object]) -> int:
    """Write parts to a new file that only the user can read. Return the CRC of all bytes. Raises OSError."""
    crc = 0
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        for part in parts:
            for start in range(0, len(part), CHUNK):
                chunk = part[start : start + CHUNK].data
                crc = zlib.crc32(chunk, crc)
                file.write(chunk)
                pause()
    return crc
