"""The SQLite index of stored states: finds those that begin like a prompt, and the least recently used one.

The longest match is found by hashes of token blocks, each of which covers all tokens before it (as in vLLM's prefix
caching, arXiv 2309.06180). All methods raise OSError and sqlite3.Error. Knows tokens and numbers; the store has the
bytes.
"""

from __future__ import annotations

import math
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from psutil import pid_exists

from runtime.backends.stored.checkpoints import Checkpoint
from runtime.backends.stored.saved_states import SavedState
from runtime.core.draft import NO_TOKEN, Adapters, Tokens
from runtime.core.outside import require_plain
from runtime.core.private_files import close_to_others, make_private_folder

BLOCK = 64  # tokens
LOCK_TIMEOUT = 0.5  # seconds to wait for another process that writes
EMPTY: NDArray[np.uint8] = np.zeros(0, np.uint8)
ON_DISK = np.dtype("<i4")
SCHEMA = """
CREATE TABLE IF NOT EXISTS states(
    id INTEGER PRIMARY KEY AUTOINCREMENT, tokens BLOB NOT NULL, n_asked INTEGER NOT NULL, n_pure INTEGER NOT NULL,
    sizes TEXT NOT NULL, crc INTEGER NOT NULL, token_seconds REAL NOT NULL, n_bytes INTEGER NOT NULL,
    n_used INTEGER NOT NULL DEFAULT 0, used INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS blocks(
    hash BLOB NOT NULL, state INTEGER NOT NULL, n INTEGER NOT NULL, PRIMARY KEY(hash, state)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS reading(state INTEGER PRIMARY KEY, pid INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS blocks_of_state ON blocks(state);
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """A stored state: `saved` has its tokens and the lengths of its checkpoints, but no bytes."""

    saved: SavedState  # its `n_exact` are the leading tokens whose cells were computed by prefill, in chunks of prompts
    sizes: tuple[int, ...]  # bytes of the state and of each checkpoint
    crc: int  # of all its bytes
    token_seconds: float  # prefill time per token when it was stored
    number: int = 0

    @property
    def n_bytes(self) -> int:
        """Size of its file in bytes."""
        return sum(self.sizes)

    def with_adapters(self, adapters: Adapters) -> Entry:
        """Return the same entry, of a state that was read with these adapters."""
        return replace(self, saved=replace(self.saved, adapters=adapters))

    @property
    def pure(self) -> Entry:
        """The same entry for a reply that may use only prefilled cells: the other tokens match no prompt."""
        tokens = self.saved.tokens.copy()
        tokens[self.saved.n_exact :] = NO_TOKEN
        return replace(self, saved=replace(self.saved, tokens=tokens))


class PrefixIndex:
    """The index in a folder that all models share. `model` identifies everything that makes a state valid."""

    def __init__(self, place: Path, model: str, grain: int) -> None:
        self.place, self.path, self._model, self._grain = place, place / "slipstream-index-2.sqlite", model, grain

    @contextmanager
    def opened(self) -> Iterator[sqlite3.Connection]:
        """Open the database for one transaction."""
        make_private_folder(self.place)
        if self.path.exists():
            require_plain(self.path)
        with closing(sqlite3.connect(self.path, LOCK_TIMEOUT)) as db:
            close_to_others(self.path, 0o600)
            db.executescript(SCHEMA)
            with db:
                yield db

    def hashes(self, tokens: Tokens, adapters: Adapters = ()) -> list[bytes]:
        """Return a hash for each whole block of tokens, which also covers all tokens before it and the adapters."""
        known, found = f"{self._model}{adapters or ''}".encode(), list[bytes]()
        data, step = tokens.astype(ON_DISK).tobytes(), BLOCK * ON_DISK.itemsize
        for start in range(0, len(data) - step + 1, step):
            known = blake2b(known + data[start : start + step], digest_size=16).digest()
            found.append(known)
        return found

    def alike(self, tokens: Tokens, adapters: Adapters = (), most: int = 16) -> list[Entry]:
        """Return up to `most` states with these adapters that begin like these tokens, the longest match first."""
        hashes = self.hashes(tokens, adapters)
        if not hashes or not self.path.exists():
            return []
        found = f"SELECT state, max(n) AS n FROM blocks WHERE hash IN ({','.join('?' * len(hashes))}) GROUP BY state"
        best = f"{found} ORDER BY n DESC LIMIT {most}"
        columns = "id, tokens, n_asked, n_pure, sizes, crc, token_seconds"
        with self.opened() as db:
            rows = db.execute(f"SELECT {columns} FROM states JOIN ({best}) ON id = state ORDER BY n DESC", hashes)
            return [self._entry(*row).with_adapters(adapters) for row in rows]

    def _entry(
        self, number: int, tokens: bytes, n_asked: int, n_pure: int, sizes: str, crc: int, token_seconds: float
    ) -> Entry:
        """Return the entry of a row. Raises ValueError where a column has another type or another form."""
        numbers = number, n_asked, n_pure, crc, token_seconds
        if not (isinstance(tokens, bytes) and isinstance(sizes, str) and all(type(n) in (int, float) for n in numbers)):
            raise ValueError("a column has another type")
        kind, *parts = sizes.split(",")
        whole, *each = (tuple(map(int, part.split(":"))) for part in parts)
        checkpoints = tuple(Checkpoint(n, EMPTY) for n, _ in each) if kind == "whole" else None
        ids = np.frombuffer(tokens, ON_DISK).astype(np.int32)
        if (
            whole[0] != len(ids)
            or not 0 <= token_seconds < math.inf
            or not (0 <= n_asked <= len(ids) and 0 <= n_pure <= len(ids))
        ):
            raise ValueError("a count is none of its tokens")
        if (each and kind != "whole") or not all(0 < n <= len(ids) and n_bytes > 0 for n, n_bytes in (whole, *each)):
            raise ValueError("a size is none")
        saved = SavedState(ids, EMPTY, n_asked, checkpoints, self._grain, n_pure)
        return Entry(saved, tuple(n_bytes for _, n_bytes in (whole, *each)), crc, token_seconds, number)

    def add(self, entry: Entry, put: Callable[[int], object], replaced: list[int]) -> None:
        """Add a state and remove those that it replaces; `put` stores its bytes under the state's new number."""
        saved, n_tokens = entry.saved, len(entry.saved.tokens)
        ends = [n_tokens, *(each.n for each in saved.checkpoints or ())]
        kind = "any" if saved.checkpoints is None else "whole"
        sizes = ",".join([kind, *(f"{n}:{n_bytes}" for n, n_bytes in zip(ends, entry.sizes, strict=True))])
        facts = saved.n_asked, saved.n_exact, sizes, entry.crc, entry.token_seconds, entry.n_bytes
        blocks = [((i + 1) * BLOCK, known) for i, known in enumerate(self.hashes(saved.tokens, saved.adapters))]
        if saved.checkpoints is not None:  # it can be restored only at these points
            blocks = [(n, known) for n, known in blocks if n in {end // BLOCK * BLOCK for end in ends}]
        with self.opened() as db:
            for old in replaced:
                forget(db, old)
            columns = "tokens, n_asked, n_pure, sizes, crc, token_seconds, n_bytes, used"
            add = f"INSERT INTO states({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, {next_use(db)})"
            number = db.execute(add, (saved.tokens.astype(ON_DISK).tobytes(), *facts)).lastrowid or 0
            db.executemany("INSERT INTO blocks VALUES (?, ?, ?)", [(known, number, n) for n, known in blocks])
            put(number)

    def note_use(self, number: int) -> None:
        """Record that a state is used, by this process until `settle`."""
        with self.opened() as db:
            db.execute(f"UPDATE states SET n_used = n_used + 1, used = {next_use(db)} WHERE id = ?", (number,))
            db.execute("INSERT OR REPLACE INTO reading VALUES (?, ?)", (number, os.getpid()))

    def settle(self, number: int) -> None:
        """Record that a state was used, and nothing happened."""
        with self.opened() as db:
            db.execute("DELETE FROM reading WHERE state = ?", (number,))

    def fatal(self) -> list[int]:
        """Return the numbers of states in whose use a process ended."""
        with self.opened() as db:
            return [number for number, pid in db.execute("SELECT state, pid FROM reading") if not pid_exists(pid)]

    def remove(self, number: int) -> None:
        """Remove a state."""
        with self.opened() as db:
            forget(db, number)

    def numbers(self) -> set[int]:
        """Return the numbers of all states."""
        with self.opened() as db:
            return {number for (number,) in db.execute("SELECT id FROM states")}

    def n_bytes(self) -> int:
        """Return the total bytes of all states."""
        with self.opened() as db:
            return int(db.execute("SELECT coalesce(sum(n_bytes), 0) FROM states").fetchone()[0])

    def oldest(self, bonus: int = 64) -> int | None:
        """Return the number of the state to evict first, the least recently used; None without states.

        A state that was used at least once counts as if `bonus` fewer states had been stored or used since.
        """
        with self.opened() as db:
            row = db.execute(f"SELECT id FROM states ORDER BY used + {bonus} * (n_used > 0) LIMIT 1").fetchone()
            return row and int(row[0])


def forget(db: sqlite3.Connection, number: int) -> None:
    """Remove a state within a transaction."""
    db.execute("DELETE FROM states WHERE id = ?", (number,))
    db.execute("DELETE FROM blocks WHERE state = ?", (number,))
    db.execute("DELETE FROM reading WHERE state = ?", (number,))


def next_use(db: sqlite3.Connection) -> int:
    """Return the number of the next use: a count instead of a time, because clocks jump."""
    return int(db.execute("SELECT coalesce(max(used), 0) + 1 FROM states").fetchone()[0])
