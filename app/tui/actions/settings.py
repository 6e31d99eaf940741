"""Settings for replies are changed and shown: sampling, length, the system prompt.

Knows the settings of all chats and of this chat; generates no replies.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from app.tui.chat_settings import DEFAULT, SETTING_NAMES
from app.tui.desktop.templates import read_template
from app.tui.dialogs.basic import PageDialog, TextDialog

if TYPE_CHECKING:
    from app.tui.chat_screen import ChatScreen

NONE = "none"


def set_option(screen: ChatScreen, argument: str) -> None:
    """Change a sampling setting or the length, of this chat or of all."""
    if not argument:
        show(screen, "")
        return
    session, branch = screen.session, screen.branch
    changed, sentence = session.settings.change(argument, session.pair, branch.settings)
    branch.set_settings(changed)
    screen.show_title()
    screen.notify(sentence, markup=False)


def show(screen: ChatScreen, argument: str) -> None:
    """Show every setting and its source."""
    screen.app.push_screen(PageDialog("Settings", page(screen)))


def page(screen: ChatScreen) -> Group:
    """Return the settings of this chat: a table, then the system prompt."""
    settings, pair, branch = screen.session.settings, screen.session.pair, screen.branch
    table = Table.grid(padding=(0, 3, 0, 0))
    for name in SETTING_NAMES:
        who, value = [(who, layer[name]) for who, layer in settings.layers(pair, branch.settings) if name in layer][-1]
        table.add_row(
            name, NONE if value is None else str(value), Text(who, "dim" if who.startswith("the model") else "")
        )
    system = Text(branch.system or "None: the model is told nothing before this chat.")
    return Group(
        Text(f"{pair.name} in this chat\n", "bold"), table, Text("\nSystem prompt\n", "bold"), system, Text(HOW, "dim")
    )


HOW = f"""
/set name value changes one in this chat, /set {DEFAULT} name value in all;
"default" as the value takes it back. /system changes the system prompt,
/system {DEFAULT} that of new chats."""


def system(screen: ChatScreen, argument: str) -> None:
    """Change the system prompt of this chat, or of all new ones."""
    word, _, rest = argument.partition(" ")
    if word == DEFAULT:
        set_for_all(screen, text_of(rest.strip()))
    elif argument:
        set_here(screen, text_of(argument))
    else:
        dialog = TextDialog("System prompt", screen.branch.system, " · /system none removes it")
        screen.app.push_screen(dialog, partial(set_here, screen))


def text_of(argument: str) -> str:
    """Return the system prompt for an argument: none, a template, or the text itself. Raises SettingsError."""
    if argument.startswith("@"):
        return read_template(argument[1:])
    return "" if argument == NONE else argument


def set_here(screen: ChatScreen, text: str | None) -> None:
    """Store this chat's system prompt, if there is a new one."""
    if text is not None:
        screen.branch.set_system(text)
        screen.show_title()
        screen.notify("The system prompt holds from the next reply on." if text else "This chat has no system prompt.")


def set_for_all(screen: ChatScreen, text: str) -> None:
    """Store the system prompt of new chats; an empty chat on screen counts as new."""
    screen.session.settings.keep_system(text)
    if screen.branch.id is None:
        screen.branch.set_system(text)
        screen.show_title()
    screen.notify("New chats begin with that system prompt." if text else "New chats begin without a system prompt.")


COMMANDS = {"set": set_option, "settings": show, "system": system}
