"""The help, generated from the table of commands so that it is always up to date. Knows names; knows no actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from app.tui.commands import Command

WRITING = """
While writing
  Enter        send
  Ctrl+J       new line (Shift+Enter too, where the terminal can)
  Up, Down     your earlier questions
  /  @         list commands, or files; Up and Down choose, Tab completes
  F9           take what the line above the prompt offers
  Esc          close that list; take back what waits to be sent; stop the reply
  Ctrl+_       undo (Ctrl+/ too); Ctrl+Y redoes
  PgUp, PgDn   scroll
  Home, End    while nothing is written: the first and the last message (Ctrl+Home, Ctrl+End: always)
  Ctrl+P       command palette
  Ctrl+Z       back to the shell for a while; fg returns
  Ctrl+C       twice: leave

On a message (Shift+Tab goes there, or a click)
  c  b         copy it, or its last code block
  d            what it changes in a file that you named with @
  e  r         say the question differently; another reply
  x            delete the question with its reply, after a question back
  Left, Right  other versions of it; with Shift: its wide code to the left and right
  Enter        unfold a long question, or what was thought
  Esc          back to writing

@file in a question attaches the text of the file, @"a file" one with a space in its name. A reply
that has the file edited comes faster, and its changes can be seen and written to the file.
A long paste becomes a chip and is sent whole.
Keys can be changed in the keymap file.
"""


def help_page(commands: Sequence[Command], keymap: Mapping[str, str]) -> Group:
    """Return the help: a row for each command with its key and help text, then the other keys."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for each in commands:
        argument = Text(f" {each.argument}", "dim") if each.argument else ""
        table.add_row(
            shown(keymap.get(f"chat.{each.name}", each.key)), f"/{each.name}", Text.assemble(each.help, argument)
        )
    return Group(table, Text(WRITING))


def shown(key: str) -> str:
    """Return a key such as `ctrl+t` as people write it."""
    return (
        ", ".join("+".join(part.capitalize() for part in each.strip().split("+")) for each in key.split(","))
        if key
        else ""
    )
