"""The keymap file, which assigns keys to commands, and the help, generated from the table of commands.

Knows names and keys; knows no actions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from platformdirs import user_config_path
from rich.console import Group
from rich.table import Table
from rich.text import Text

from app.tui.commands import Command
from runtime.core.errors import SettingsError, nearest
from runtime.models.strict_toml import only_value, read_toml

WRITING = {
    "Enter": "send; in a new chat, without a text: open the last chat",
    "Ctrl+J": "new line (Shift+Enter too, where the terminal can)",
    "Up, Down": "your earlier questions",
    "/  @": "list commands, or files; Up and Down choose, Tab completes",
    "F9": "take what the line above the prompt offers",
    "Esc": "close that list; take back what waits to be sent; stop the reply",
    "Ctrl+_": "undo (Ctrl+/ too); Ctrl+Y redoes",
    "PgUp, PgDn": "scroll",
    "Home, End": "while nothing is written: the first and the last message (Ctrl+Home, Ctrl+End: always)",
    "Ctrl+P": "command palette",
    "Ctrl+Z": "back to the shell for a while; fg returns",
    "Ctrl+C": "clear what is written (Up brings it back); while nothing is written, twice: leave",
    "Ctrl+D": "while nothing is written: leave",
}
MESSAGE = {
    "c  b": "copy it, or its last code block",
    "d": "what it changes in a file that you named with @",
    "e  r": "say the question differently; another reply",
    "x": "delete the question with its reply, once you confirm it",
    "Left, Right": "other versions of it; with Shift: its wide code to the left and right",
    "Enter": "unfold a long question, or what was thought",
    "Esc": "back to writing; so does any other letter, which is written",
}
FILES = """
@file in a question attaches the text of the file, @"a file" one with a space in its name. A reply that has the file \
edited comes faster, and its changes can be seen and written to the file. A long paste becomes a chip and is sent whole.

Keys are changed in {path}, for example:
  [keys]
  "chat.theme" = "ctrl+t"
"""


def default_keymap() -> Path:
    """Return the path of this person's keymap, which may not exist."""
    return user_config_path("slipstream", appauthor=False) / "keymap.toml"


def read_keymap(path: Path, known: list[str]) -> dict[str, str]:
    """Return the keys, separated by commas, by binding id; empty without a file.

    Raises SettingsError naming file, id and the nearest known one.
    """
    keys = only_value(path, read_toml(path, SettingsError), "keys", SettingsError)
    if not isinstance(keys, dict):
        raise SettingsError(f"{path}: 'keys' must be a table, such as [keys].")
    for name, value in keys.items():
        if name not in known:
            raise SettingsError(f"{path}: there is no action '{name}'. {nearest(name, known)}")
        if not isinstance(value, str) or not value.strip():
            raise SettingsError(f"{path}: '{name}' must be a key such as \"ctrl+t\", or several separated by commas.")
    return keys


def help_page(commands: Sequence[Command], keymap: Mapping[str, str]) -> Group:
    """Return the help: a row for each command with its key and help text, then the other keys."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for each in commands:
        argument = Text(f" {each.argument}", "dim") if each.argument else ""
        key = shown(keymap.get(f"chat.{each.name}", each.key))
        table.add_row(Text(key), Text(f"/{each.name}"), Text.assemble(each.help, argument))
    writing = section("While writing", WRITING)
    message = section("On a message (Shift+Tab goes there, or a click)", MESSAGE)
    return Group(table, *writing, *message, Text(FILES.format(path=default_keymap())))


def section(heading: str, keys: Mapping[str, str]) -> tuple[Text, Table]:
    """Return a heading, and a row for each key with what it does."""
    table = Table.grid(padding=(0, 2, 0, 2))
    for key, does in keys.items():
        table.add_row(Text(key, no_wrap=True), Text(does))
    return Text(f"\n{heading}"), table


def shown(key: str) -> str:
    """Return a key such as `ctrl+t` as people write it."""
    return ", ".join("+".join(part.capitalize() for part in each.strip().split("+")) for each in key.split(","))
