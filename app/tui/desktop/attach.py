"""`@file` in a question: appends the file's text to the question, and extracts it again.

Knows files and text; knows no widgets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from runtime.core.errors import SettingsError

MOST = 1 << 20  # maximal bytes of a file
NAMED = re.compile(r'(?<!\S)@(?:"([^"\n]+)"|(\S+))')


def attach(text: str) -> str:
    """Return the text, followed by every file named in it.

    Names that are not files are left unchanged. Raises SettingsError for a file that is not text.
    """
    blocks = [block(path) for path in named_in(text) if is_file(path)]
    added = [each for each in dict.fromkeys(blocks) if each not in text]  # an edited question already contains some
    return "\n\n".join([text.rstrip(), *added]) if added else text


def named_in(text: str) -> Iterator[Path]:
    """Yield the path after each `@`, whether or not the file exists."""
    for quoted, bare in NAMED.findall(text):
        yield Path(quoted or bare.rstrip(".,;:!?)")).expanduser()


def attached_in(question: str) -> dict[str, str]:
    """Return the texts of the files attached to a question, by path as written there."""
    found: dict[str, str] = {}
    for path in named_in(question) if "@" in question else ():
        attached = rf"^{re.escape(str(path))}:\n(`{{3,}})[^`\n]*\n(.*?)\n\1$"
        if match := re.search(attached, question, re.DOTALL | re.MULTILINE):
            found[str(path)] = match[2]
    return found


def is_file(path: Path) -> bool:
    """Return whether there is such a file. A name may also be too long for a file."""
    try:
        return path.is_file()
    except OSError:
        return False


def block(path: Path) -> str:
    """Return the file as a fenced code block with its name."""
    return f"{path}:\n{fenced(str(path), read(path))}"


def read(path: Path) -> str:
    """Return the file's text with LF line ends and none at its end. Raises SettingsError."""
    try:
        if path.stat().st_size > MOST:
            raise SettingsError(f"{path} is larger than {MOST >> 20} MiB. Attach a part of it.")
        return path.read_text(encoding="utf-8-sig").rstrip("\n")
    except OSError as error:
        raise SettingsError(f"{path} cannot be read ({error.strerror}). Attach a file that you may read.") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path} is not UTF-8 text, so it cannot be attached. Convert it first.") from error


def fenced(path: str, text: str) -> str:
    """Return a file's text as a code block, with a fence longer than any run of backticks in it."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}{Path(path).suffix[1:]}\n{text}\n{fence}"
