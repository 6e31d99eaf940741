"""`@file` in a question: the text of the file is put after it. Knows files and text; knows no widgets."""

from __future__ import annotations

import re
from pathlib import Path

from runtime.core.errors import SettingsError

MOST = 1 << 20  # bytes of a file
NAMED = re.compile(r'(?<!\S)@(?:"([^"\n]+)"|(\S+))')


def attach(text: str) -> str:
    """The text, followed by every file named in it.

    What names no file is left as it is. Raises SettingsError for a file that is no text.
    """
    blocks: list[str] = []
    for quoted, bare in NAMED.findall(text):
        path = Path(quoted or bare.rstrip(".,;:!?)")).expanduser()
        if is_file(path):
            blocks.append(block(path))
    added = [each for each in dict.fromkeys(blocks) if each not in text]  # a question that is edited has some already
    return "\n\n".join([text.rstrip(), *added]) if added else text


def is_file(path: Path) -> bool:
    """Is there such a file? A name may also be too long to be one."""
    try:
        return path.is_file()
    except OSError:
        return False


def block(path: Path) -> str:
    """The file as a fenced code block with its name, fenced by more backticks than it has."""
    try:
        if path.stat().st_size > MOST:
            raise SettingsError(f"{path} is larger than {MOST >> 20} MiB. Attach a part of it.")
        content = path.read_text(encoding="utf8").rstrip("\n")
    except OSError as error:
        raise SettingsError(f"{path} cannot be read ({error.strerror}). Attach a file that you may read.") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path} is not UTF-8 text, so it cannot be attached. Convert it first.") from error
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", content)), default=0))
    return f"{path}:\n{fence}{path.suffix[1:]}\n{content}\n{fence}"
