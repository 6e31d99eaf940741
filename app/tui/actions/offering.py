"""The offer in the line above the prompt: show an edit of a file, continue in a full context, load the model of a
reopened chat, or choose another one after a question outside the bundled model's subject. One key accepts it.

Knows the branch on screen; names the command and runs nothing.
"""

from __future__ import annotations

import builtins
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.chats.authors import MODEL, Facts, author_of, is_other, loadable
from app.chats.branch import FULL_AT, NO_ROOM
from app.models.starting import BUNDLED
from app.tui.actions import models, views
from app.tui.background.engine_host import STOPPED
from app.tui.commands import COMMANDS
from app.tui.dialogs.help_page import shown
from app.tui.edits import last_edits
from app.tui.pieces import clean

if TYPE_CHECKING:
    from app.tui.chat_screen import ChatScreen

KEY, ID = "f9", "chat.offer"  # key and id of the binding
KEYS = {each.name: each.key for each in COMMANDS}
NAME = re.compile(r"[A-Za-z_][\w.]*")


@dataclass(frozen=True, slots=True)
class Offered:
    """An offer: its sentence and its command; without a command, only a remark."""

    sentence: str
    command: str = ""
    argument: str = ""
    is_author: bool = False  # whether it is about the model that wrote the chat


def look(screen: ChatScreen) -> None:
    """Update the offer and show it."""
    screen.offered = None if screen.host.is_replying else offered(screen)
    views.show_numbers(screen)


def look_at_author(screen: ChatScreen) -> None:
    """Offer the model that wrote a chat, which was just opened, if another one is loaded."""
    screen.offered = of_author(screen) or screen.offered
    views.show_numbers(screen)


def look_again(screen: ChatScreen) -> None:
    """Update the offer after it was taken, or for a model that was just loaded."""
    was_about_author = screen.offered is not None and screen.offered.is_author
    look(screen)
    if was_about_author:
        look_at_author(screen)


def of_author(screen: ChatScreen) -> Offered | None:
    """Return the offer of the model that wrote most of the chat; None if it is loaded, or not known."""
    session, coming = screen.session, screen.host.coming
    answers = session.signature(coming) if coming or session.engine else None
    facts = author_of(screen.branch.messages())
    if not is_other(facts, answers):
        return None
    wrote, name = clean(str(facts[MODEL])), loadable(facts, session.recent)
    now = f" {clean(str(answers[MODEL]))} answers now." if answers else ""
    if not models.is_here(screen, name):
        return Offered(f"{wrote}, which wrote this chat, is not on this machine any more.{now}", is_author=True)
    key = shown(session.keymap.get(ID, KEY))
    return Offered(f"{wrote} wrote this chat.{now} {key} loads {wrote}.", "model", name, is_author=True)


def offered(screen: ChatScreen) -> Offered | None:
    """Return the offer for the last reply on screen."""
    messages = screen.branch.messages()
    last, key = messages[-1:], shown(screen.session.keymap.get(ID, KEY))
    if last and FULL_AT in last[0].facts:
        return when_full(screen, last[0].facts, key)
    if last and last[0].facts.get("end") == STOPPED:
        keymap = screen.session.keymap
        more, other = (shown(keymap.get(f"chat.{name}", KEYS[name])) for name in ("continue", "regenerate"))
        return Offered(f"The reply was stopped. {more} continues it, {other} begins another one.", "continue")
    if edits := last_edits(messages):
        paths = " and ".join(clean(each.path) for each in edits)
        return Offered(f"The reply changes {paths}. {key} shows how, before anything is written.", "diff")
    if len(messages) > 1 and messages[-1].facts.get("model") == BUNDLED and is_foreign(messages[-2].content):
        return Offered(
            f"{BUNDLED} knows only Python's standard library, and this question names no module of it: "
            f"the answer may be nonsense. {key} lists models to talk to.",
            "model",
        )
    return None


def when_full(screen: ChatScreen, facts: Facts, key: str) -> Offered | None:
    """Return the offer for a reply that had no more room in the context."""
    engine, full_at = screen.session.engine, facts[FULL_AT]
    if engine is not None and engine.facts.n_ctx > full_at:
        return Offered(f"The context is longer now. {key} continues the reply.", "continue")
    may_grow = engine is not None and engine.facts.n_ctx < engine.facts.n_ctx_train
    longer = "/context loads the model with a longer one" if may_grow else "Ctrl+N begins another chat"
    full = f"The context of {full_at:,} tokens is full."
    if NO_ROOM in facts:
        return Offered(f"{full} {key} continues without the oldest turns, which stay on screen. {longer}.", "room")
    return Offered(f"{full} {key} or {longer}." if may_grow else f"{full} {longer}.", "context" if may_grow else "")


def is_foreign(question: str) -> bool:
    """Return whether the question names nothing of Python's standard library."""
    known = sys.stdlib_module_names | set(dir(builtins))
    return not any(part in known for word in NAME.findall(question) for part in word.split("."))
