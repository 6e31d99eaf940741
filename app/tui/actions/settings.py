"""What holds for replies is changed and shown: sampling, length, the system prompt.

Knows the settings and this chat's share of them; makes no replies.
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
    """Changes sampling or length, of this chat or of all."""
    if not argument:
        show(screen, "")
        return
    session, branch = screen.session, screen.branch
    changed, sentence = session.settings.change(argument, session.pair, branch.settings)
    branch.set_settings(changed)
    screen.show_title()
    screen.notify(sentence, markup=False)


def show(screen: ChatScreen, argument: str) -> None:
    """Shows every setting, and what says so."""
    screen.app.push_screen(PageDialog("Settings", page(screen)))


def page(screen: ChatScreen) -> Group:
    """The settings of this chat: a table, then the system prompt."""
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
    """Changes what the model is told before this chat, or before every new one."""
    word, _, rest = argument.partition(" ")
    if word == DEFAULT:
        set_for_all(screen, text_of(rest.strip()))
    elif argument:
        set_here(screen, text_of(argument))
    else:
        dialog = TextDialog("System prompt", screen.branch.system, " · /system none removes it")
        screen.app.push_screen(dialog, partial(set_here, screen))


def text_of(argument: str) -> str:
    """The system prompt that is meant: none, a kept text, or what is said. Raises SettingsError."""
    if argument.startswith("@"):
        return read_template(argument[1:])
    return "" if argument == NONE else argument


def set_here(screen: ChatScreen, text: str | None) -> None:
    """Keeps this chat's system prompt, if there is a new one."""
    if text is not None:
        screen.branch.set_system(text)
        screen.show_title()
        screen.notify("The system prompt holds from the next reply on." if text else "This chat has no system prompt.")


def set_for_all(screen: ChatScreen, text: str) -> None:
    """Keeps a system prompt for new chats; one that is still empty is new."""
    screen.session.settings.keep_system(text)
    if screen.branch.id is None:
        screen.branch.set_system(text)
        screen.show_title()
    screen.notify("New chats begin with that system prompt." if text else "New chats begin without a system prompt.")


COMMANDS = {"set": set_option, "settings": show, "system": system}
