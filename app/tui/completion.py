"""Slash commands are read from a text, and the text at the cursor is completed: commands, their arguments, files.

Knows text, the table of commands and file names; the completion of a command's argument is passed in; runs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import takewhile
from pathlib import Path

from app.tui.commands import COMMANDS, Command
from runtime.core.errors import SettingsError

SETTINGS = ("temperature", "seed")  # aliases of /set that belong to its argument
TELLING = 3  # letters; from this length on the words of the help texts are searched, too
COMMAND_NAME = r"[a-z][a-z-]*|\?"
WORD = re.compile(rf"/({COMMAND_NAME})(?:\s+(.*))?\s*\Z", re.DOTALL)
NAME = re.compile(rf"/({COMMAND_NAME}|)\Z")
ARGUMENT = re.compile(rf"/({COMMAND_NAME}) +(.*)\Z")
OPTIONAL = re.compile(r"\[[^\]]*\]")
FILE = re.compile(r'(?<!\S)@(?:"([^"\n]*)|(\S*))\Z')


def parse(text: str) -> tuple[Command, str] | None:
    """Return the slash command in a text and its argument, or None for a question.

    Raises SettingsError naming the nearest commands.
    """
    if text == "/":
        raise SettingsError("A command's name is missing after the slash: F1 lists all. To say it, begin with a space.")
    if not (match := WORD.match(text.strip())):
        return None
    word, argument = match[1], (match[2] or "").strip()
    for command in COMMANDS:
        if word in (command.name, *command.aliases):
            return command, f"{word} {argument}" if argument and word in SETTINGS else argument
    raise SettingsError(f"There is no command /{match[1]}. {meant(match[1])} To say it, begin with a space.")


def matching(typed: str) -> list[Command]:
    """Return the commands that match a typed beginning, the best first: by name, by alias and, from a few letters on,
    by a word of the help.
    """
    ranked = ((rank(each, typed.lower()), each) for each in COMMANDS)
    return [each for found, each in sorted(ranked, key=lambda one: one[0] or 0) if found is not None]


def rank(command: Command, typed: str) -> int | None:
    """Return how well the letters match the command, 0 for its name or an alias; None for no match."""
    if typed in (command.name, *command.aliases):
        return 0
    if command.name.startswith(typed):
        return 1
    if any(alias.startswith(typed) for alias in command.aliases):
        return 2
    words = re.findall("[a-z]+", f"{command.title} {command.help}".lower())
    return 3 if len(typed) >= TELLING and any(word.startswith(typed) for word in words) else None


def meant(typed: str) -> str:
    """Return a sentence that suggests the nearest commands."""
    by_word = {alias: command.name for command in COMMANDS for alias in (*command.aliases, command.name)}
    close = get_close_matches(typed, list(by_word), n=2, cutoff=0.7)
    names = [each.name for each in matching(typed)[:2]] or [by_word[word] for word in close]
    if not names:
        return "No command has a similar name: / alone lists them."
    return f"Did you mean {' or '.join(f'/{name}' for name in dict.fromkeys(names))}?"


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A replacement for the typed letters, with a line about it."""

    text: str
    note: str = ""
    goes_on: bool = False  # whether more has to be typed after it
    shown: str = ""  # the text in the list, if that differs from `text`


@dataclass(frozen=True, slots=True)
class Completion:
    """The suggestions for a text. `begin` is the index in the text of the letters that a suggestion replaces."""

    begin: int = 0
    suggestions: Sequence[Suggestion] = ()
    is_command: bool = False
    is_named: bool = False  # whether the letters are the first command's name or an alias of it


Arguments = Mapping[str, Callable[[str], Iterable[Suggestion]]]  # by command name; called with the typed argument


def complete(text: str, arguments: Arguments) -> Completion:
    """Return the completion at the end of a text."""
    if named := NAME.match(text):
        found = matching(named[1])
        is_named = bool(found) and rank(found[0], named[1]) == 0
        return Completion(0, [of_command(each.usage, each.help) for each in found], True, is_named)
    if (argued := ARGUMENT.match(text)) and argued[1] in arguments:
        fit = [each for each in arguments[argued[1]](argued[2]) if each.text != argued[2]]
        if fit:
            return Completion(argued.start(2), fit)
    if file := FILE.search(text):
        typed = file[1] if file[1] is not None else file[2]
        return Completion(file.start() + 1, [named_file(each) for each in paths(typed) if each != typed])
    return Completion(len(text))


def of_command(usage: str, note: str) -> Suggestion:
    """Return the suggestion for a command; more has to be typed if it requires an argument."""
    name, _, argument = usage.partition(" ")
    return Suggestion(f"{name} " if argument else name, note, bool(OPTIONAL.sub("", argument).strip()), usage)


def named_file(path: str) -> Suggestion:
    """Return the suggestion for a file after an `@`, in quotation marks if its name has a space."""
    is_folder = path.endswith("/")
    text = f'"{path}' + '"' * (not is_folder) if " " in path else path
    return Suggestion(text, goes_on=is_folder, shown=last_part(path))


def last_part(path: str) -> str:
    """Return the name of a file or folder without its parent folders."""
    return path[path.rfind("/", 0, len(path) - 1) + 1 :]


def common(words: Sequence[str]) -> str:
    """Return the longest common prefix."""
    letters = takewhile(lambda same: len(set(same)) == 1, zip(*words, strict=False))
    return "".join(same[0] for same in letters)


def paths(begun: str, suffix: str = "") -> list[str]:
    """Return the paths that begin with these letters, folders with a slash; files only if they have the suffix."""
    folder, _, name = begun.rpartition("/")
    try:
        base = Path(folder + "/" if folder or begun.startswith("/") else ".").expanduser()
        found = sorted(base.iterdir())
    except (OSError, RuntimeError, ValueError):  # unreadable; unknown user; invalid name
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
