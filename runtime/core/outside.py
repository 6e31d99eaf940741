"""Text and files from outside: what people wrote into files, send on standard input or name as arguments.

Bytes are decoded by their byte-order mark, else as UTF-8, or refused: they are never taken for another text. Only
regular files are read: a pipe, a device or a socket is refused before it is opened, as that could wait forever.
"""

from __future__ import annotations

import codecs
import errno
import stat
from collections.abc import Sequence
from pathlib import Path

from runtime.core.errors import SettingsError

MARK = "\ufeff"  # byte-order mark
ENCODINGS = {  # by the mark's bytes, those of UTF-32 first: its mark begins with that of UTF-16
    codecs.BOM_UTF32_LE: "utf-32-le", codecs.BOM_UTF32_BE: "utf-32-be", codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}  # fmt: skip
OFF = ("off", "none")  # words for no value
REMEDY = "convert it to UTF-8, such as with `iconv -f latin1 -t utf8`"


def is_off(words: Sequence[str]) -> bool:
    """Return whether these words are one that means no value."""
    return len(words) == 1 and words[0] in OFF


class NotTextError(ValueError):
    """Bytes that are no text, or in an unknown encoding; the message is a clause, with the remedy."""


def encoding_of(data: bytes) -> str:
    """Return the encoding that the beginning of a text marks; UTF-8 without a mark."""
    return next((name for mark, name in ENCODINGS.items() if data.startswith(mark)), "utf-8")


def exact_text(data: bytes, is_cut: bool = False) -> str:
    """Return a text with its byte-order mark, if any, and its line ends; with `is_cut`, its last character may be
    incomplete.

    Raises NotTextError.
    """
    encoding = encoding_of(data)
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(data, not is_cut)
    except UnicodeDecodeError as error:
        raise NotTextError(f"it is not UTF-8 text, from byte {error.start + 1} on: {REMEDY}") from error
    if "\0" in text:
        raise NotTextError("it has zero bytes, like UTF-16 without a byte-order mark: save it as UTF-8, if it is text")
    return text


def plain(text: str) -> str:
    """Return a text without a byte-order mark, its lines ended by LF."""
    return text.removeprefix(MARK).replace("\r\n", "\n").replace("\r", "\n")


def text_of(data: bytes, is_cut: bool = False) -> str:
    """Return a text without a byte-order mark, its lines ended by LF. Raises NotTextError."""
    return plain(exact_text(data, is_cut))


def is_text(argument: str) -> bool:
    """Return whether an argument could be decoded: the system hands over other bytes as lone surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in argument)


def read_plain(path: Path) -> bytes:
    """Return the content of a file. Raises OSError."""
    require_plain(path)
    return path.read_bytes()


def expanded(path: Path) -> Path:
    """Return the path with a home folder in place of `~`. Raises SettingsError for that of an unknown user."""
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise SettingsError(f"There is no home folder for '{path}'. Write the path in full.") from error


def require_plain(path: Path) -> None:
    """Raise OSError unless the path is a regular file."""
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder", str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is not a file, but a pipe, a device or a socket", str(path))
