"""Texts are put into the prompt: a template, one from the history, the text of an editor.

Knows texts; sends nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.tui.desktop.editor import write_in_editor
from app.tui.desktop.templates import TEMPLATE, keep_template, names, read_template
from app.tui.dialogs.basic import PickDialog, narrowing

if TYPE_CHECKING:
    from app.tui.chat_screen import ChatScreen

EXCERPT = 200  # characters of a text in a list


def template(screen: ChatScreen, argument: str) -> None:
    """Put a template into the prompt, from a list if none is named; or store one."""
    if not (named := TEMPLATE.fullmatch(argument)):
        pick_template(screen)
    elif named[2]:
        screen.notify(keep_template(named[1], named[2].strip()), markup=False)
    else:
        begin_with(screen, named[1])


def pick_template(screen: ChatScreen) -> None:
    """List the templates and put the picked one into the prompt."""
    lines = [(f"{name}: {excerpt(read_template(name))}", name) for name in names()]

    async def picked(name: str | None) -> None:
        if name is not None:
            await screen.attempt(begin_with, screen, name)

    screen.app.push_screen(PickDialog("Begin with", narrowing(lines), "\n/template name text keeps one"), picked)


def begin_with(screen: ChatScreen, name: str) -> None:
    """Put a template into the prompt. Raises SettingsError if there is none of that name."""
    screen.prompt.begin(read_template(name))


def history(screen: ChatScreen, argument: str) -> None:
    """Search the texts sent before, and put the picked one into the prompt."""

    def find(typed: str) -> list[tuple[str, str]]:
        texts = [text for text in reversed(screen.prompt.past) if typed.lower() in text.lower()]
        return [(excerpt(text), text) for text in texts]

    def begin(text: str | None) -> None:
        if text is not None:
            screen.prompt.begin(text)

    screen.app.push_screen(PickDialog("Your earlier questions", find), begin)


def editor(screen: ChatScreen, argument: str) -> None:
    """Continue writing in another program."""
    screen.prompt.begin(write_in_editor(screen.app, screen.prompt.unfolded()))


def excerpt(text: str) -> str:
    """Return the beginning of a text on one line."""
    return " ".join(text.split())[:EXCERPT]


COMMANDS = {"template": template, "history": history, "editor": editor}
