"""`@file` in a question: puts the file's text before the question, and extracts it again; a picture stays a file.

Knows files and text; knows no widgets.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from mimetypes import guess_type
from pathlib import Path
from types import MappingProxyType

from app.chats.pictures import Attached, ChatPicture, picture_of
from app.tui.picture_files import fault_of, load, look
from runtime.core.outside import NotTextError, text_of

MAX_FILE = 1 << 20  # of a file
PICTURE = "is a picture"  # why a file has no text
NAMED = re.compile(r'(?<!\S)@(?:"([^"\n]+)"|(\S+))')
WORD = re.compile(r"[\w-]{1,64}")  # a name without an extension or a folder
EXTENSION = re.compile(r"\.[A-Za-z]\w{0,9}\Z")
CODE = re.compile(  # code blocks, and decorators, which also begin with an @
    r"^(`{3,}|~{3,})[^`\n]*\n.*?^\1$|^[ \t]*@[\w.]+\n(?=\s*(?:@|def |class |async ))", re.DOTALL | re.MULTILINE
)


def attach(text: str) -> str:
    """Return the text after every file named in it. Names of anything else are left unchanged.

    Files come first, so that they can be read while the rest of the question is typed.
    """
    found = ((path, *read(path)) for path in map(path_of, names_in(text)))
    blocks = [f"{path}:\n{fenced(str(path), inside)}" for path, inside, fault in found if not fault]
    added = [each for each in dict.fromkeys(blocks) if each not in text]  # an edited question already contains some
    return "\n\n".join([*added, text.rstrip()]) if added else text


def names_in(text: str) -> Iterator[str]:
    """Yield the name after each `@`, whether or not there is such a file."""
    for quoted, bare in NAMED.findall(text) if "@" in text else ():
        yield quoted or bare.rstrip(".,;:!?)")


def path_of(name: str) -> Path:
    """Return the path that a name stands for; `~` is the home folder."""
    with suppress(RuntimeError):  # no such user
        return Path(name).expanduser()
    return Path(name)


def unattached(text: str, pictures: Collection[str] = ()) -> str:
    """Return why files named in a text cannot be attached, as a sentence; "" if all can. `pictures` are those that the
    question has already.

    A missing file is reported only if its name has a path separator or an extension: `@alice` is no file.
    """
    attached, faults = attached_in(text), dict[str, str]()
    for name in names_in(CODE.sub("", text)):
        path = path_of(name)
        if str(path) in attached or name in pictures or not may_be_file(name, path):
            continue
        if (fault := read(path)[1]) not in ("", PICTURE):
            faults[name] = fault
    if not faults:
        return ""
    told = " and ".join(f"{name} {fault}" for name, fault in faults.items())
    return f"{told}, so {'it is' if len(faults) == 1 else 'they are'} not attached."


def pictures_named(text: str, known: Attached = MappingProxyType({})) -> dict[ChatPicture, bytes]:
    """Return the pictures named in a text, with their files. Those that are `known` already stay as they are."""
    found, known_by_name = dict[ChatPicture, bytes](), {each.name: each for each in known}
    for name in names_in(CODE.sub("", text)):
        if (earlier := known_by_name.get(name)) is not None:
            found[earlier] = known[earlier]
        elif loaded := load(path_of(name)):
            size, data = loaded
            found[picture_of(name, data, size)] = data
    return found


def told_pictures(text: str) -> str:
    """Return the names and sizes of the pictures named in a text, in words; "" without any."""
    found = list[str]()
    for name in dict.fromkeys(names_in(CODE.sub("", text))):
        with suppress(OSError):
            if size := look(path_of(name))[0]:
                found.append(f"{name}, {size.kind}, {size.width} x {size.height} pixels")
    return "; ".join(found)


def unnamed(text: str) -> str:
    """Return a sentence about words after an `@` that could be files and are none, such as people; "" without any."""
    names = dict.fromkeys(name for name in names_in(CODE.sub("", text)) if WORD.fullmatch(name))
    if lost := [name for name in names if not Path(name).exists()]:
        return f"No file is called {' or '.join(lost)}, so only the text is sent."
    return ""


def may_be_file(name: str, path: Path) -> bool:
    """Return whether a name after an `@` is meant as a file's: there is such a file or folder, or it looks like a path
    and not like code, an address or a handle.
    """
    with suppress(OSError):
        if name and path.exists():
            return True
    looks_so = "/" in name or "\\" in name or EXTENSION.search(name)
    return bool(looks_so) and not re.search(r"[(){}<>=*|]|://|@", name)


def attachments_in(question: str) -> list[re.Match[str]]:
    """Return the places of the files attached to a question: group 1 is the path as written there, 3 the text."""
    paths = dict.fromkeys(re.escape(str(path_of(name))) for name in names_in(question))
    attached = rf"^({'|'.join(paths)}):\n(`{{3,}})[^`\n]*\n(.*?)\n\2$"
    return list(re.finditer(attached, question, re.DOTALL | re.MULTILINE)) if paths else []


def attached_in(question: str) -> dict[str, str]:
    """Return the texts of the files attached to a question, by path as written there."""
    return {place[1]: place[3] for place in reversed(attachments_in(question))}


def without_attached(question: str) -> str:
    """Return the question without the texts of the files attached to it."""
    parts, end = list[str](), 0
    for place in attachments_in(question):
        parts.append(question[end : place.start()].rstrip("\n"))
        end = place.end()
    return "".join([*parts, question[end:]]).lstrip("\n")


def read(path: Path) -> tuple[str, str]:
    """Return the file's text with LF line ends and none at its end, and why it cannot be attached, as the end of a
    sentence that begins with its name; "" if it can.
    """
    try:
        if not path.is_file():
            return "", "does not exist" if not path.exists() else "is a folder" if path.is_dir() else "is no file"
        size, fault = look(path)
        if size or fault:
            return "", fault or PICTURE
        if path.stat().st_size > MAX_FILE:
            return "", f"is larger than {MAX_FILE >> 20} MiB"
        data = path.read_bytes()
        return text_of(data).rstrip("\n"), ""
    except NotTextError:
        kind, _ = guess_type(path)
        return "", fault_of(data) if kind and kind.startswith("image/") else "is not UTF-8 text"
    except OSError as error:
        return "", f"cannot be read ({error.strerror})"


def fenced(path: str, text: str) -> str:
    """Return a file's text as a code block, with a fence longer than any run of backticks in it."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}{Path(path).suffix[1:]}\n{text}\n{fence}"
