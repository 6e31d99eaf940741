"""Past replies on disk, one file per model and vocabulary: token ids, for the user alone, bounded in size, and never
worth an error.

They hold what was said, so the folder and its files are closed to others (0700, 0600). A record is a mark, a length, a
checksum and tokens, appended in one write: processes may share a file, and what was cut off or damaged is skipped. A
file that grew too large is replaced by one of its newest replies. Where nothing can be written, nothing is kept.
"""

from __future__ import annotations

import logging
import os
import struct
import tempfile
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from platformdirs import user_data_path

from runtime.core.draft import Tokens
from runtime.core.errors import SlipstreamError

MAX_BYTES = 512 * 1024  # of a file: 130,000 tokens
KEPT = 0.75  # of that, when the oldest replies are dropped
MARK = b"SLP1"
HEAD = struct.Struct("<4sII")  # mark, number of tokens, CRC-32 of their bytes
ON_DISK = np.dtype("<i4")

log = logging.getLogger(__name__)


def folder() -> Path:
    """Where every model's replies are."""
    return user_data_path("slipstream") / "replies"


def pack(reply: Tokens) -> bytes:
    """A reply as a record."""
    body = reply.astype(ON_DISK).tobytes()
    return HEAD.pack(MARK, len(reply), zlib.crc32(body)) + body


def unpack(data: bytes, n_vocab: int) -> tuple[list[Tokens], bool]:
    """(the whole records of a file, is that all of it?); tokens that the vocabulary has not are damage."""
    replies, at, is_whole = list[Tokens](), 0, True
    while 0 <= at < len(data):
        reply = _unpack_one(data, at)
        if reply is not None and reply.view(np.uint32).max(initial=0) < n_vocab:
            replies.append(reply)
            at += HEAD.size + reply.nbytes
        else:
            is_whole, at = False, data.find(MARK, at + 1)
    return replies, is_whole


def _unpack_one(data: bytes, at: int) -> Tokens | None:
    """The record that begins at byte `at`, if a whole one does."""
    if len(data) - at < HEAD.size:
        return None
    mark, n, checksum = HEAD.unpack_from(data, at)
    body = data[at + HEAD.size : at + HEAD.size + n * ON_DISK.itemsize]
    if mark != MARK or len(body) < n * ON_DISK.itemsize or zlib.crc32(body) != checksum:
        return None
    return np.frombuffer(body, dtype=ON_DISK).astype(np.int32)


class Replies:
    """One file of past replies."""

    def __init__(self, path: Path, n_vocab: int, max_bytes: int = MAX_BYTES) -> None:
        self.path, self.n_vocab, self.max_bytes = path, n_vocab, max_bytes
        self.max_tokens = max_bytes // ON_DISK.itemsize
        self._seen: tuple[int, int] | None = None  # the file as it was last read or written here: inode and size

    def has_changed(self) -> bool:
        """Did another process add to the file, replace it or wipe it?"""
        return self._state() != self._seen

    def _state(self) -> tuple[int, int] | None:
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_ino, status.st_size

    def read(self) -> list[Tokens]:
        """The replies that are kept, oldest first.

        A damaged file, or one that is too large, is replaced by what is good and new in it.
        """
        try:
            data = self.path.read_bytes()
        except OSError as error:
            if not isinstance(error, FileNotFoundError):
                log.info("Past replies cannot be read (%s), so nothing is drafted from them.", error)
            data = b""
        replies, is_whole = unpack(data, self.n_vocab)
        if not is_whole:
            log.warning(
                "The file of past replies %s was damaged and is made anew. Replies in it that are whole: %d.",
                self.path,
                len(replies),
            )
        if len(data) > self.max_bytes or not is_whole:
            replies = newest(replies, int(KEPT * self.max_bytes))
            self._replace(replies)
        self._seen = self._state()
        return replies

    def append(self, reply: Tokens) -> None:
        """Keeps one more, where that is possible."""
        record = pack(reply)
        try:
            make_private_folder(self.path.parent)
            file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(file, record)
                status = os.fstat(file)
            finally:
                os.close(file)
            close_to_others(self.path, 0o600)
        except OSError as error:
            log.info("The reply could not be kept (%s).", error)
            return
        is_ours = (self._seen or (status.st_ino, 0)) == (status.st_ino, status.st_size - len(record))
        if is_ours and status.st_size <= self.max_bytes:  # else it is read again before the next reply
            self._seen = status.st_ino, status.st_size

    def _replace(self, replies: Sequence[Tokens]) -> None:
        """Writes the file anew, whole or not at all."""
        try:
            make_private_folder(self.path.parent)
            handle, name = tempfile.mkstemp(dir=self.path.parent)  # made with mode 0600
            new = Path(name)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.writelines(map(pack, replies))
                new.replace(self.path)
            except OSError:
                with suppress(OSError):
                    new.unlink()
                raise
        except OSError as error:
            log.info("The file of past replies could not be replaced (%s).", error)


def make_private_folder(path: Path) -> None:
    """Makes the folder, for the user alone."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    close_to_others(path, 0o700)


def close_to_others(path: Path, mode: int) -> None:
    """Takes away what others may do with it, if they may do anything."""
    if path.stat().st_mode & 0o077:
        path.chmod(mode)


def newest(replies: Sequence[Tokens], n_bytes: int) -> list[Tokens]:
    """The last of `replies` that fit into so many bytes."""
    first, room = len(replies), n_bytes
    while first and (room := room - HEAD.size - replies[first - 1].nbytes) >= 0:
        first -= 1
    return list(replies[first:])


def forget() -> int:
    """Wipes the replies kept of every model; returns how many bytes that were.

    Raises SlipstreamError where it cannot.
    """
    n_bytes = 0
    for path in folder().glob("*"):
        try:
            n_bytes += path.stat().st_size
            path.unlink()
        except OSError as error:
            raise SlipstreamError(
                f"{path} cannot be removed ({error.strerror}). Remove the folder {path.parent} yourself."
            ) from error
    return n_bytes
