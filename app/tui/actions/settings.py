"""Settings for replies are changed and shown: sampling, length, the system prompt.

Knows the settings of all chats and of this chat; generates no replies.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from app.tui.actions import context
from app.tui.chat_settings import DEFAULT, SETTING_NAMES, UNSET, Source
from app.tui.desktop.templates import read_template
from app.tui.dialogs.basic import TextDialog
from app.tui.dialogs.settings_list import SettingRow, SettingsList
from app.tui.pieces import clean

if TYPE_CHECKING:
    from app.tui.chat_screen import ChatScreen

NONE = "none"
SYSTEM, CONTEXT = "system prompt", "context"  # rows besides the settings of replies


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
    """List every setting with its source, and change the picked one."""
    show_at(screen)


def show_at(screen: ChatScreen, at: str = "") -> None:
    """List the settings, with one of them highlighted."""

    async def picked(name: str | None) -> None:
        if name is not None:
            await screen.attempt(change, screen, name)

    title = clean(f"Settings: {screen.session.pair.name} in this chat")
    screen.app.push_screen(SettingsList(title, rows(screen), at), picked)


def change(screen: ChatScreen, name: str) -> None:
    """Ask for another value of a setting, and list all again with it. Raises SettingsError."""
    if name == CONTEXT:
        context.context(screen, "")
        return

    async def written(text: str | None) -> None:
        if text is not None:
            await screen.attempt(set_value, screen, name, text)
        show_at(screen, name)

    value = next(row.value for row in rows(screen) if row.name == name)
    hint = f"\n{NONE} removes it" if name == SYSTEM else f"\n{UNSET} restores it"
    screen.app.push_screen(TextDialog(name, "" if value == NONE else value, hint), written)


def set_value(screen: ChatScreen, name: str, text: str) -> None:
    """Change a setting or the system prompt of this chat. Raises SettingsError."""
    if name == SYSTEM:
        set_here(screen, "" if text == NONE else text)
    else:
        set_option(screen, f"{name} {text}")


def rows(screen: ChatScreen) -> list[SettingRow]:
    """Return the settings of this chat: the system prompt, the context, then sampling and length."""
    settings, pair, branch = screen.session.settings, screen.session.pair, screen.branch
    whose = Source.ALL_CHATS if branch.system == settings.system else Source.THIS_CHAT
    found = [SettingRow(SYSTEM, branch.system or NONE, whose if branch.system else "")]
    found.append(SettingRow(CONTEXT, *context.shown(screen)))
    for name in SETTING_NAMES:
        value, source = settings.source(name, pair, branch.settings)
        found.append(SettingRow(name, NONE if value is None else str(value), source, source == Source.USUAL))
    return found


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
        screen.notify("The system prompt applies from now on." if text else "This chat has no system prompt.")


def set_for_all(screen: ChatScreen, text: str) -> None:
    """Store the system prompt of new chats; an empty chat on screen counts as new."""
    screen.session.settings.keep_system(text)
    if screen.branch.id is None:
        screen.branch.set_system(text)
        screen.show_title()
    screen.notify("New chats begin with that system prompt." if text else "New chats begin without a system prompt.")


COMMANDS = {"set": set_option, "settings": show, "system": system}
