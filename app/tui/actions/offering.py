"""The offer in the line above the prompt: show an edit of a file, continue in a full context, or choose another model
after a question outside the bundled model's subject. One key accepts it.

Knows the branch on screen; names the command and runs nothing.
"""

from __future__ import annotations

import builtins
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.chats.branch import NO_ROOM
from app.tui.actions import first_steps, views
from app.tui.dialogs.help_page import shown
from app.tui.edits import last_edits
from app.tui.pieces import clean

if TYPE_CHECKING:
    from app.tui.chat_screen import ChatScreen

KEY, ID = "f9", "chat.offer"  # key and id of the binding
NAME = re.compile(r"[A-Za-z_][\w.]*")


@dataclass(frozen=True, slots=True)
class Offered:
    """An offer: its sentence and its command."""

    sentence: str
    command: str


def look(screen: ChatScreen) -> None:
    """Update the offer and show it."""
    screen.offered = None if screen.host.is_replying else offered(screen)
    views.show_numbers(screen)


def offered(screen: ChatScreen) -> Offered | None:
    """Return the offer for the last reply on screen."""
    messages = screen.branch.messages()
    last, key = messages[-1:], shown(screen.session.keymap.get(ID, KEY))
    if last and last[0].facts.get(NO_ROOM):
        return Offered(
            f"The context is full: the model cannot read all of this chat. {key} leaves the oldest turns out from now "
            "on (they stay on screen), Ctrl+N begins another chat.",
            "room",
        )
    if edits := last_edits(messages):
        paths = " and ".join(clean(each.path) for each in edits)
        return Offered(f"The reply edits {paths}. {key} shows the changes; the file is written if you say so.", "diff")
    if (
        len(messages) > 1
        and messages[-1].facts.get("model") == first_steps.BUNDLED
        and is_foreign(messages[-2].content)
    ):
        return Offered(
            f"{first_steps.BUNDLED} knows Python's standard library alone, and this question names no module of it: "
            f"the answer may be nonsense. {key} lists models to talk to.",
            "model",
        )
    return None


def is_foreign(question: str) -> bool:
    """Return whether the question names nothing of Python's standard library."""
    known = sys.stdlib_module_names | set(dir(builtins))
    return not any(part in known for word in NAME.findall(question) for part in word.split("."))
