"""The table of commands, used for slash commands, keys, the command palette and the help.

Knows names; runs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from textual.binding import Binding


@dataclass(frozen=True, slots=True)
class Command:
    """A command `/name argument` with its texts for people; `actions` has the function."""

    name: str
    key: str  # "" for none
    title: str
    help: str
    argument: str  # its arguments, for the help
    aliases: tuple[str, ...]  # other names, for the search

    @property
    def usage(self) -> str:
        """The command as it is typed, with its arguments."""
        return f"/{self.name} {self.argument}".rstrip()


IN_FOOTER = "help", "why", "panel", "chats", "new", "model"  # whose keys are shown at the bottom
# Each command as it is typed, with its arguments; its key; its title; other names, for the search. Below it its help
TABLE = """
/help | f1 | Help | keys commands man ?
    Keys and commands
/why | f2 | Why | stats speed info show verbose explain
    Whether replies are faster here, and why
/tokens | ctrl+t | Tokens | colours colors highlight
    Colour the words that were guessed, by where the guesses came from
/panel | ctrl+b | Graphs | sidebar charts
    Live graphs of guesses and speed
/chats | ctrl+o | Chats | list resume sessions conversations find
    Open, search, rename, export and delete chats
/new | ctrl+n | New | clear reset start
    Begin a new chat
/model [pair, GGUF file or hf:owner/repo] | ctrl+l | Model | models load use switch run
    Load another model; it is downloaded first if it is not here
/pull pair or owner/repo |  | Fetch | download get install fetch
    Download a model from the hub; Esc pauses, the same command resumes
/regenerate | ctrl+g | Regenerate | retry again redo
    Another reply to the last question; the old one stays as a version
/compare [model] [question] |  | Compare | versus side both
    Another model answers the same question, side by side, with both speeds
/continue | ctrl+s | Continue | more go
    Continue the last reply where it stopped
/room [--default] |  | Make room | trim compact forget
    Leave the oldest turns out when the context is full, in this chat or with --default in all
/context [tokens] |  | Context | ctx window length
    Load this model again with another length of context; what it costs in memory is shown before
/delete-turn |  | Delete turn | drop erase
    Delete the last question with its reply; x deletes the selected one
/diff |  | Changes | apply accept patch changes
    What the last reply changes in a file that you named with @, to be written to it
/undo |  | Take back | revert
    Undo the last accepted edit of a file
/edit | f4 | Edit | change rewrite fork branch
    Rewrite the last question; the old branch stays as a version
/copy [code] | f5 | Copy | clipboard yank
    Copy the last reply, or its last code block
/system [--default] [text, @template or none] | f6 | System prompt | role persona instructions prompt
    Instructions for the model in this chat, or with --default in all new ones
/template [name] [text] |  | Template | snippet prompts
    Insert a saved text; a text after the name saves it, none removes it
/rename [title] |  | Rename | title name
    Another title for this chat
/export [--numbers] [file.md or file.json] |  | Export | save write
    Write this chat to a Markdown or JSON file, with --numbers who wrote each reply and how fast
/set [--default] name value |  | Set | temperature seed sampling parameter params
    Sampling and length of this chat, or with --default of all: temperature, top_p, seed, max_tokens, ...
/settings |  | Settings | config options status preferences
    Every setting of this chat and where it comes from; Enter changes one
/preset [name, save name or remove name] |  | Preset | profile assistant character
    A model, a system prompt and settings under one name: use, save or remove one
/history | ctrl+r | History | search before
    Search your earlier questions
/editor | f7 | Editor | vim nano emacs
    Write in the program that $EDITOR names
/theme | f3 | Light or dark | dark light
    Switch between the light and the dark theme
/serve [port, socket path or off] |  | Serve editors | server api
    Editor access to this model while the chat is open, on or off
/log | f8 | Log | debug events
    What happened in this session
/quit | ctrl+q | Quit | exit bye leave q close
    Leave; every chat is kept
"""


def read_table(table: str) -> tuple[Command, ...]:
    """Return the commands of a table."""
    lines = table.strip("\n").split("\n")
    found = []
    for line, about in zip(lines[::2], lines[1::2], strict=True):
        usage, key, title, aliases = (part.strip() for part in line.split("|"))
        name, _, argument = usage.removeprefix("/").partition(" ")
        found.append(Command(name, key, title, about.strip(), argument, tuple(aliases.split())))
    return tuple(found)


COMMANDS = read_table(TABLE)


def bindings() -> list[Binding]:
    """Return a binding for each command that has a key; a keymap file may change the keys."""
    return [
        Binding(
            each.key,
            f"command('{each.name}')",
            each.title,
            tooltip=each.help,
            show=each.name in IN_FOOTER,
            id=f"chat.{each.name}",
            priority=True,
        )
        for each in COMMANDS
        if each.key
    ]
