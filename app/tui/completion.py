"""What may follow what is being typed: commands, their arguments, files.

Knows text, the table of commands and names of files; what a command's argument may be it is told.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from app.tui.commands import matching

NAME = re.compile(r"/([a-z]*|\?)\Z")
ARGUMENT = re.compile(r"/([a-z]+) +(.*)\Z")
OPTIONAL = re.compile(r"\[[^\]]*\]")
FILE = re.compile(r'(?<!\S)@(?:"([^"\n]*)|(\S*))\Z')


@dataclass(frozen=True, slots=True)
class Suggestion:
    """What could stand in place of the letters that were typed, and a line about it."""

    text: str
    note: str = ""
    goes_on: bool = False  # is more to be typed after it?
    shown: str = ""  # where it is listed otherwise than it is typed


@dataclass(frozen=True, slots=True)
class Completion:
    """What may follow. `begin` is where in the text the letters begin that a suggestion replaces."""

    begin: int = 0
    suggestions: Sequence[Suggestion] = ()
    is_command: bool = False


Arguments = Mapping[str, Callable[[str], Iterable[Suggestion]]]  # by a command's name; given what is typed after it


def complete(text: str, arguments: Arguments) -> Completion:
    """What may follow a text, which ends where one types."""
    if named := NAME.match(text):
        return Completion(0, [of_command(each.usage, each.help) for each in matching(named[1])], is_command=True)
    if (argued := ARGUMENT.match(text)) and argued[1] in arguments:
        fit = [each for each in arguments[argued[1]](argued[2]) if each.text != argued[2]]
        if fit:
            return Completion(argued.start(2), fit)
    if file := FILE.search(text):
        typed = file[1] if file[1] is not None else file[2]
        return Completion(file.start() + 1, [named_file(each) for each in paths(typed) if each != typed])
    return Completion(len(text))


def of_command(usage: str, note: str) -> Suggestion:
    """A command as it is listed and typed; it goes on where something must follow."""
    name, _, argument = usage.partition(" ")
    return Suggestion(f"{name} " if argument else name, note, bool(OPTIONAL.sub("", argument).strip()), usage)


def named_file(path: str) -> Suggestion:
    """A file after an `@`, in quotation marks where its name has a space."""
    is_folder = path.endswith("/")
    text = f'"{path}' + '"' * (not is_folder) if " " in path else path
    return Suggestion(text, goes_on=is_folder, shown=last_part(path))


def last_part(path: str) -> str:
    """The name of a file or folder without where it is."""
    return path[path.rfind("/", 0, len(path) - 1) + 1 :]


def common(words: Sequence[str]) -> str:
    """The letters that all of these words begin with."""
    letters = takewhile(lambda same: len(set(same)) == 1, zip(*words, strict=False))
    return "".join(same[0] for same in letters)


def paths(begun: str, suffix: str = "") -> list[str]:
    """The paths that begin with these letters, folders with a slash; of files those with a suffix."""
    folder, _, name = begun.rpartition("/")
    try:
        base = Path(folder + "/" if folder or begun.startswith("/") else ".").expanduser()
        found = sorted(base.iterdir())
    except (OSError, RuntimeError, ValueError):  # unreadable; a home that is nobody's; a name that cannot be one
        return []
    prefix = begun[: len(begun) - len(name)]
    hidden = name.startswith(".")
    return [
        prefix + path.name + "/" * path.is_dir()
        for path in found
        if path.name.startswith(name)
        and (hidden or path.name[0] != ".")
        and (path.name.endswith(suffix) or path.is_dir())
    ]
