"""What can be asked for: one table for slash commands, keys, the command palette and the help.

Knows names; does nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from textual.binding import Binding

from runtime.core.errors import SettingsError
from runtime.models.strict_toml import nearest

WORD = re.compile(r"/([a-z]+)(?:\s+(.*))?\s*\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Command:
    """What `/name argument` does, as it is told to people; `actions.dispatch` has the function."""

    name: str
    key: str  # "" for none
    title: str
    help: str
    argument: str = ""  # what may follow, for the help
    footer: bool = False  # is its key shown at the bottom?


COMMANDS = (
    Command("help", "f1", "Help", "Keys and commands", footer=True),
    Command("why", "f2", "Why", "What decides about speculation here, with the numbers", footer=True),
    Command("tokens", "ctrl+t", "Tokens", "Colour the tokens by the drafter that guessed them", footer=True),
    Command("panel", "ctrl+b", "Graphs", "Live graphs of draft length and acceptance", footer=True),
    Command("chats", "ctrl+o", "Chats", "Open, search, rename, export and delete chats", footer=True),
    Command("new", "ctrl+n", "New", "Begin a new chat", footer=True),
    Command(
        "model",
        "ctrl+l",
        "Model",
        "Load another pair, fetched first where it is not here",
        "[pair, GGUF file or hf:owner/repo]",
    ),
    Command(
        "pull", "", "Fetch", "Fetch a model from the hub; Esc pauses, the same again goes on", "pair or owner/repo"
    ),
    Command("regenerate", "ctrl+g", "Regenerate", "Another reply to the last question; the old one stays as a version"),
    Command("continue", "", "Continue", "Go on with the last reply where it stopped"),
    Command("edit", "f4", "Edit", "Say the last question differently; the old branch stays as a version"),
    Command("copy", "f5", "Copy", "Copy the last reply, or its last code block", "[code]"),
    Command("system", "f6", "System prompt", "What the model is told before the chat", "[text, @template or none]"),
    Command(
        "template",
        "",
        "Template",
        "Begin with a kept text; a text after the name keeps it, none removes it",
        "[name] [text]",
    ),
    Command("rename", "", "Rename", "Another title for this chat", "[title]"),
    Command("export", "", "Export", "Write this chat to a Markdown or JSON file", "[file.md or file.json]"),
    Command(
        "set", "", "Set", "Sampling and length: temperature, top_k, top_p, min_p, seed, max_tokens, ...", "name value"
    ),
    Command("history", "ctrl+r", "History", "Search what you said before"),
    Command("editor", "f7", "Editor", "Write in the program that $EDITOR names"),
    Command("theme", "f3", "Light or dark", "Switch between the light and the dark theme"),
    Command(
        "serve",
        "",
        "Serve editors",
        "Answer editors from this model while the chat is open, or no more",
        "[port, socket path or off]",
    ),
    Command("log", "f8", "Log", "What happened in this session"),
    Command("quit", "ctrl+q", "Quit", "Leave; every chat is kept"),
)
COMMAND_NAMES = [f"/{command.name}" for command in COMMANDS]


def bindings() -> list[Binding]:
    """A binding for each command that has a key; a keymap file may name others."""
    return [
        Binding(
            each.key,
            f"command('{each.name}')",
            each.title,
            tooltip=each.help,
            show=each.footer,
            id=f"chat.{each.name}",
            priority=True,
        )
        for each in COMMANDS
        if each.key
    ]


def parse(text: str) -> tuple[Command, str] | None:
    """A slash command and what follows it; None for something to say.

    Raises SettingsError naming the nearest command.
    """
    if not (match := WORD.match(text.strip())):
        return None
    for command in COMMANDS:
        if command.name == match[1]:
            return command, (match[2] or "").strip()
    raise SettingsError(
        f"There is no command /{match[1]}. {nearest('/' + match[1], COMMAND_NAMES)} To say it, begin with a space."
    )
