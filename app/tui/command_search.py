"""Slash commands are read from a text and found by what was typed.

Knows the table of commands; runs nothing.
"""

from __future__ import annotations

import re
from difflib import get_close_matches

from app.tui.commands import COMMANDS, Command
from runtime.core.errors import SettingsError

SETTINGS = ("temperature", "seed")  # aliases of /set that belong to its argument
TELLING = 3  # letters; from this length on the words of the help texts are searched, too
NAME = r"[a-z][a-z-]*|\?"
WORD = re.compile(rf"/({NAME})(?:\s+(.*))?\s*\Z", re.DOTALL)


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
