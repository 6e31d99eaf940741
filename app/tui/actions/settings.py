"""Settings for replies are changed and shown: sampling, length, the system prompt.

Knows the settings of all chats and of this chat; generates no replies.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from app.terminal import clean
from app.tui.actions import context
from app.tui.chat import OpenChat
from app.tui.chat_settings import DEFAULT, SETTING_NAMES, UNSET, Source
from app.tui.dialogs.basic import ConfirmDialog, TextDialog
from app.tui.dialogs.settings_list import ABOUT, SettingRow, SettingsList
from app.tui.presets import read_template
from runtime.core.errors import SettingsError
from runtime.models.adapters import told

NONE = "none"
SYSTEM, CONTEXT, ADAPTERS = "system prompt", "context", "adapters"  # rows besides the settings of replies
ABOUT_ADAPTERS = "LoRA adapters, which change the model, and their scales. Named with --lora where the chat is started."
ABOUT_SYSTEM = "Instructions that the model reads before this chat, such as a role or a language."


def set_option(screen: OpenChat, argument: str, after: Callable[[bool], object] = lambda is_set: None) -> None:
    """Change a sampling setting or the length, of this chat or of all; an unusual value only after a yes. `after` is
    called with whether it was changed.
    """
    if not argument:
        show(screen, "")
        return

    def keep(is_meant: bool) -> None:
        keep_option(screen, argument)
        after(is_meant)

    change = screen.session.settings.checked(argument, screen.session.pair, screen.branch.settings)
    if change.doubt:
        dialog = ConfirmDialog("Is that meant?", change.doubt, "sets it", "leaves it as it is")
        screen.ask(dialog, keep, partial(after, False))
    else:
        keep(True)


def keep_option(screen: OpenChat, argument: str) -> None:
    """Change a setting, and show that."""
    session, branch = screen.session, screen.branch
    changed, sentence = session.settings.change(argument, session.pair, branch.settings)
    branch.set_settings(changed)
    screen.show_title()
    screen.notify(sentence)


def show(screen: OpenChat, argument: str) -> None:
    """List every setting with its source, and change the picked one."""
    show_at(screen)


def show_at(screen: OpenChat, at: str = "") -> None:
    """List the settings, with one of them highlighted."""
    title = clean(f"Settings: {screen.session.pair.name} in this chat")
    screen.ask(SettingsList(title, rows(screen), at), partial(change, screen))


def change(screen: OpenChat, name: str, text: str = "") -> None:
    """Ask for another value of a setting, beginning with the present one or a text, and list all again with it."""
    if name == CONTEXT:
        change_context(screen)
        return
    if name == ADAPTERS:
        show_at(screen, name)
        return
    settings, pair, here = screen.session.settings, screen.session.pair, screen.branch.settings

    def check(text: str) -> None:
        if name != SYSTEM:
            settings.checked(f"{name} {text}", pair, here)

    row = next(row for row in rows(screen) if row.name == name)
    present = "" if name == SYSTEM and row.value == NONE else row.value
    dialog = TextDialog(name, text or present, hint(screen, name), row.about, check, is_selected=name != SYSTEM)
    screen.ask(dialog, partial(set_value, screen, name), partial(show_at, screen, name))


def change_context(screen: OpenChat) -> None:
    """Ask for another length of context; without one, list all again. Raises SettingsError."""
    back = partial(show_at, screen, CONTEXT)
    try:
        context.ask(screen, back=back)
    except SettingsError:
        back()
        raise


def hint(screen: OpenChat, name: str) -> str:
    """Return the word that restores a setting, for its dialog."""
    if name == SYSTEM:
        return f"\n{NONE} removes it"
    value, source = screen.session.settings.source(name, screen.session.pair, {})
    return f"\n{UNSET} restores {NONE if value is None else value} ({source})"


def set_value(screen: OpenChat, name: str, text: str) -> None:
    """Change a setting or the system prompt of this chat and list all again; a value that is not meant after all is
    asked for again. Raises SettingsError.
    """
    if name == SYSTEM:
        set_here(screen, "" if text == NONE else text)
        show_at(screen, name)
    else:
        again = partial(change, screen, name, text)
        set_option(screen, f"{name} {text}", lambda is_set: show_at(screen, name) if is_set else again())


def rows(screen: OpenChat) -> list[SettingRow]:
    """Return the settings of this chat: the system prompt, the context, adapters, then sampling and length."""
    settings, pair, branch = screen.session.settings, screen.session.pair, screen.branch
    whose = Source.ALL_CHATS if branch.system == settings.system else Source.THIS_CHAT
    found = [SettingRow(SYSTEM, branch.system or NONE, whose if branch.system else "", about=ABOUT_SYSTEM)]
    found.append(SettingRow(CONTEXT, *context.shown(screen), about=context.ABOUT))
    if pair.lora:
        found.append(SettingRow(ADAPTERS, told(pair.lora, with_off=True), "", about=ABOUT_ADAPTERS))
    for name in SETTING_NAMES:
        value, source = settings.source(name, pair, branch.settings)
        found.append(
            SettingRow(name, NONE if value is None else str(value), source, source == Source.USUAL, ABOUT[name])
        )
    return found


def system(screen: OpenChat, argument: str) -> None:
    """Change the system prompt of this chat, or of all new ones."""
    word, _, rest = argument.partition(" ")
    if word == DEFAULT:
        set_for_all(screen, text_of(rest.strip()))
    elif argument:
        set_here(screen, text_of(argument))
    else:
        dialog = TextDialog("System prompt", screen.branch.system, "\n/system none removes it", ABOUT_SYSTEM)
        screen.ask(dialog, partial(set_here, screen))


def text_of(argument: str) -> str:
    """Return the system prompt for an argument: none, a template, or the text itself. Raises SettingsError."""
    if argument.startswith("@"):
        return read_template(argument[1:])
    return "" if argument == NONE else argument


def set_here(screen: OpenChat, text: str) -> None:
    """Store this chat's system prompt."""
    screen.branch.set_system(text)
    screen.show_title()
    screen.notify("The next reply follows this system prompt." if text else "This chat has no system prompt.")


def set_for_all(screen: OpenChat, text: str) -> None:
    """Store the system prompt of new chats; an empty chat on screen counts as new."""
    screen.session.settings.keep_system(text)
    if screen.branch.id is None:
        screen.branch.set_system(text)
        screen.show_title()
    screen.notify("New chats begin with that system prompt." if text else "New chats begin without a system prompt.")


COMMANDS = {"set": set_option, "settings": show, "system": system}
