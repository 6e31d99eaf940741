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
    argument: str = ""  # its arguments, for the help
    footer: bool = False  # whether its key is shown at the bottom
    aliases: tuple[str, ...] = ()  # other names, for the search

    @property
    def usage(self) -> str:
        """The command as it is typed, with its arguments."""
        return f"/{self.name} {self.argument}".rstrip()


COMMANDS = (
    Command("help", "f1", "Help", "Keys and commands", footer=True, aliases=("keys", "commands", "man", "?")),
    Command(
        "why",
        "f2",
        "Why",
        "Whether replies are faster here, and why",
        footer=True,
        aliases=("stats", "speed", "info", "show", "verbose", "explain"),
    ),
    Command(
        "tokens",
        "ctrl+t",
        "Tokens",
        "Colour the words that were guessed, by where the guesses came from",
        aliases=("colours", "colors", "highlight"),
    ),
    Command(
        "panel",
        "ctrl+b",
        "Graphs",
        "Live graphs of guesses and speed",
        footer=True,
        aliases=("sidebar", "charts"),
    ),
    Command(
        "chats",
        "ctrl+o",
        "Chats",
        "Open, search, rename, export and delete chats",
        footer=True,
        aliases=("list", "resume", "sessions", "conversations", "find"),
    ),
    Command("new", "ctrl+n", "New", "Begin a new chat", footer=True, aliases=("clear", "reset", "start")),
    Command(
        "model",
        "ctrl+l",
        "Model",
        "Load another model; it is downloaded first if it is not here",
        "[pair, GGUF file or hf:owner/repo]",
        footer=True,
        aliases=("models", "load", "use", "switch", "run"),
    ),
    Command(
        "pull",
        "",
        "Fetch",
        "Download a model from the hub; Esc pauses, the same command resumes",
        "pair or owner/repo",
        aliases=("download", "get", "install", "fetch"),
    ),
    Command(
        "regenerate",
        "ctrl+g",
        "Regenerate",
        "Another reply to the last question; the old one stays as a version",
        aliases=("retry", "again", "redo"),
    ),
    Command(
        "compare",
        "",
        "Compare",
        "Another model answers the same question, side by side, with both speeds",
        "[model] [question]",
        aliases=("versus", "side", "both"),
    ),
    Command("continue", "ctrl+s", "Continue", "Continue the last reply where it stopped", aliases=("more", "go")),
    Command(
        "room",
        "",
        "Make room",
        "Leave the oldest turns out when the context is full, in this chat or with --default in all",
        "[--default]",
        aliases=("trim", "compact", "forget"),
    ),
    Command(
        "context",
        "",
        "Context",
        "Load this model again with another length of context; what it costs in memory is shown before",
        "[tokens]",
        aliases=("ctx", "window", "length"),
    ),
    Command(
        "delete-turn",
        "",
        "Delete turn",
        "Delete the last question with its reply; x deletes the selected one",
        aliases=("drop", "erase"),
    ),
    Command(
        "diff",
        "",
        "Changes",
        "What the last reply changes in a file that you named with @, to be written to it",
        aliases=("apply", "accept", "patch", "changes"),
    ),
    Command("undo", "", "Take back", "Undo the last accepted edit of a file", aliases=("revert",)),
    Command(
        "edit",
        "f4",
        "Edit",
        "Rewrite the last question; the old branch stays as a version",
        aliases=("change", "rewrite", "fork", "branch"),
    ),
    Command(
        "copy", "f5", "Copy", "Copy the last reply, or its last code block", "[code]", aliases=("clipboard", "yank")
    ),
    Command(
        "system",
        "f6",
        "System prompt",
        "Instructions for the model in this chat, or with --default in all new ones",
        "[--default] [text, @template or none]",
        aliases=("role", "persona", "instructions", "prompt"),
    ),
    Command(
        "template",
        "",
        "Template",
        "Insert a saved text; a text after the name saves it, none removes it",
        "[name] [text]",
        aliases=("snippet", "prompts"),
    ),
    Command("rename", "", "Rename", "Another title for this chat", "[title]", aliases=("title", "name")),
    Command(
        "export",
        "",
        "Export",
        "Write this chat to a Markdown or JSON file, with --numbers who wrote each reply and how fast",
        "[--numbers] [file.md or file.json]",
        aliases=("save", "write"),
    ),
    Command(
        "set",
        "",
        "Set",
        "Sampling and length of this chat, or with --default of all: temperature, top_p, seed, max_tokens, ...",
        "[--default] name value",
        aliases=("temperature", "seed", "sampling", "parameter", "params"),
    ),
    Command(
        "settings",
        "",
        "Settings",
        "Every setting of this chat and where it comes from; Enter changes one",
        aliases=("config", "options", "status", "preferences"),
    ),
    Command(
        "preset",
        "",
        "Preset",
        "A model, a system prompt and settings under one name: use, save or remove one",
        "[name, save name or remove name]",
        aliases=("profile", "assistant", "character"),
    ),
    Command("history", "ctrl+r", "History", "Search your earlier questions", aliases=("search", "before")),
    Command("editor", "f7", "Editor", "Write in the program that $EDITOR names", aliases=("vim", "nano", "emacs")),
    Command("theme", "f3", "Light or dark", "Switch between the light and the dark theme", aliases=("dark", "light")),
    Command(
        "serve",
        "",
        "Serve editors",
        "Editor access to this model while the chat is open, on or off",
        "[port, socket path or off]",
        aliases=("server", "api"),
    ),
    Command("log", "f8", "Log", "What happened in this session", aliases=("debug", "events")),
    Command("quit", "ctrl+q", "Quit", "Leave; every chat is kept", aliases=("exit", "bye", "leave", "q", "close")),
)


def bindings() -> list[Binding]:
    """Return a binding for each command that has a key; a keymap file may change the keys."""
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
