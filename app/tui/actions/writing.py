"""Texts are put into the prompt: a template, one from the history, the text of an editor.

Knows texts; sends nothing.
"""

from __future__ import annotations

from functools import partial

from textual.events import Key, Paste

from app.tui.chat import OpenChat
from app.tui.completion import parse
from app.tui.dialogs.basic import PickDialog, narrowing
from app.tui.presets import TEMPLATE, keep_template, read_template, template_names
from app.tui.terminal import write_in_editor
from app.tui.widgets.prompt import is_letter
from runtime.core.errors import SettingsError

EXCERPT = 200  # characters of a text in a list
NONE_YET = "There is no template yet. /template review Review this code: saves a text, which /template review inserts."


def template(screen: OpenChat, argument: str) -> None:
    """Put a template into the prompt, from a list if none is named; or store one."""
    if not (named := TEMPLATE.fullmatch(argument)):
        pick_template(screen)
    elif named[2]:
        screen.notify(keep_template(named[1], named[2].strip()))
    else:
        begin_with(screen, named[1])


def pick_template(screen: OpenChat) -> None:
    """List the templates and put the picked one into the prompt."""
    if not template_names():
        raise SettingsError(NONE_YET)
    lines = [(f"{name}: {excerpt(read_template(name))}", name) for name in template_names()]
    dialog = PickDialog("Begin with", narrowing(lines), "\n/template name text keeps one")
    screen.ask(dialog, partial(begin_with, screen))


def begin_with(screen: OpenChat, name: str) -> None:
    """Put a template into the prompt. Raises SettingsError if there is none of that name."""
    screen.prompt.begin(read_template(name))


def history(screen: OpenChat, argument: str) -> None:
    """Search the questions asked before, without commands, and put the picked one into the prompt."""
    asked = [text for text in reversed(screen.prompt.past) if not is_command(text)]

    def find(typed: str) -> list[tuple[str, str]]:
        return [(excerpt(text), text) for text in asked if typed.lower() in text.lower()]

    screen.ask(PickDialog("Your earlier questions", find), screen.prompt.begin)


def is_command(text: str) -> bool:
    """Return whether a text sent before was a command, or was meant to be one."""
    try:
        return not text.startswith(" ") and parse(text) is not None
    except SettingsError:
        return True


def take(screen: OpenChat, event: Key | Paste) -> None:
    """Put a letter or a paste into the prompt that nothing else has taken."""
    if isinstance(event, Paste):
        screen.prompt.post_message(Paste(event.text))
    elif is_letter(event) and event.character and event.key not in screen.active_bindings:
        screen.prompt.insert(event.character)
    else:
        return
    event.stop()
    screen.prompt.focus()


def editor(screen: OpenChat, argument: str) -> None:
    """Continue writing in another program."""
    screen.prompt.begin(write_in_editor(screen.app, screen.prompt.unfolded()))


def excerpt(text: str) -> str:
    """Return the beginning of a text on one line."""
    return " ".join(text.split())[:EXCERPT]


COMMANDS = {"template": template, "history": history, "editor": editor}
