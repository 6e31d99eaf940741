"""The conversation that `run` continues: that of the last `run`, or a chat of the terminal.

Knows the file of chats; runs no model and parses no options.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import typer

from app.chats.authors import LOADS, RECENT, Facts, author_of, loadable, name_of, recent_models, signed, with_latest
from app.chats.branch import INTERRUPTED, ChatBranch
from app.chats.database import StoreError, default_path, keep_value, kept_value
from app.chats.store import Store, read_json
from app.cli.choices import is_model
from app.cli.oneshot import OneshotRequest, PrintedReply
from app.models.starting import BUNDLED, can_load
from app.reply_text import split_reasoning
from runtime.core.errors import SettingsError
from runtime.engine import Message
from runtime.models.addresses import is_web
from runtime.models.registry import Pair

LAST_RUN = "last run"  # name of the preference
MAX_CHATS = 10_000  # chats that are looked through
SHOWN = 5  # titles in an error


@dataclass(frozen=True, slots=True)
class Continued:
    """A conversation before the next question of `run`. By default it is new."""

    messages: tuple[Message, ...] = ()
    model: str = ""  # the name that loads the model of its last reply; "": unknown
    chat: ChatBranch | None = None  # the chat that it is, to which the next turn is added
    images: tuple[bytes, ...] = ()  # files of the pictures whose marks the messages have

    def keep(self, request: OneshotRequest, reply: PrintedReply, pair: Pair) -> None:
        """Store the next turn, for the chat or for the next `run`, and the model as the one used last. All but a chat's
        turn is dropped silently if there is no place for it.
        """
        if self.chat is not None:
            add_turn(self.chat, request, reply, signed(pair))
        with suppress(OSError, sqlite3.Error, StoreError, UnicodeError):  # the last for a file's name that is no text
            if self.chat is None and not request.raw:
                turns = [*request.conversation, Message("assistant", split_reasoning(reply.text)[1])]
                kept = {LOADS: name_of(pair), "messages": [[each.role, each.content] for each in turns]}
                keep_value(LAST_RUN, json.dumps(kept))
            note_used(pair)


def add_turn(chat: ChatBranch, asked: OneshotRequest, reply: PrintedReply, signature: Facts) -> None:
    """Add a question and its reply to a chat, and close the chats. Raises StoreError if the chat no longer exists."""
    chat.ask(asked.named, pictures=asked.pictures)
    message = chat.begin_reply(signature)
    facts = {**message.facts, "end": INTERRUPTED} if reply.code else message.facts
    chat.store.update_message(message.id, reply.text, facts)
    chat.store.close()


def note_used(pair: Pair) -> None:
    """Record that a model was used, unless it is the bundled one, which is for trying. Raises OSError and SQLite's
    errors.
    """
    if pair.name != BUNDLED:
        keep_value(RECENT, with_latest(name_of(pair), [*recent_models()]))


def chosen(continues: bool, title: str, raw: bool, texts: Sequence[str]) -> Continued:
    """Return the conversation that these options of `run` ask for. Raises BadParameter for those that contradict each
    other, SettingsError if there is no such conversation, and StoreError if the chats cannot be read.
    """
    if continues and title:
        raise typer.BadParameter("--continue and --chat name two conversations: give one of them.")
    if raw and (continues or title):
        raise typer.BadParameter("A raw prompt is no part of a conversation: leave out --raw.")
    if continues and texts and texts[0].isdecimal():
        raise typer.BadParameter(
            "This continues the last conversation. For the context, it is --context N.", param_hint="'-c'"
        )
    if title:
        return chat_titled(title)
    return last_run() if continues else Continued()


def forget_last_run() -> None:
    """Delete the stored conversation of the last `run`, if there is one. Raises OSError and SQLite's errors."""
    if kept_value(LAST_RUN):
        keep_value(LAST_RUN, "")


def last_run() -> Continued:
    """Return the conversation of the last `run`. Raises SettingsError if there is none."""
    kept = read_json(kept_value(LAST_RUN))
    messages = tuple(Message(str(role), str(content)) for role, content in kept.get("messages", ()))
    if not messages:
        raise SettingsError("There is no conversation to continue yet. Leave out --continue.")
    return Continued(messages, str(kept.get(LOADS, "")))


def chat_titled(title: str) -> Continued:
    """Return the chat of that title, or the only one whose title begins with it or contains it. Raises SettingsError
    if there is none or several, and StoreError if the chats cannot be read.
    """
    store = Store(default_path())
    branch = ChatBranch(store, find_chat(store, title, "--chat"))
    return Continued(tuple(branch.prompt()), str(author_of(branch.messages()).get(LOADS, "")), branch, branch.images())


def chat_to_open(named: str, path: Path | None) -> tuple[int, str]:
    """Return the chat to open at the start, and the model to load, "" for the usual one. `named` is that model, or the
    chat's title. Without either, it is the last chat; without a model, the chat's own if it is here.

    Raises SettingsError if there is no such chat or several, and StoreError if the chats cannot be read.
    """
    is_title = not (is_model(named) or is_web(named))
    store = Store(path or default_path())
    try:
        chat = find_chat(store, named if is_title else "", "-c")
        wrote = author_of(store.branch(store.chat(chat).leaf))
    finally:
        store.close()
    if not is_title:
        return chat, named
    recent = list(recent_models(path))
    own = loadable(wrote, recent) if wrote else ""
    return chat, own if own and can_load(own, recent) else ""


def find_chat(store: Store, title: str, option: str) -> int:
    """Return the chat of that title, or the last one for "". Raises SettingsError if there is none or several."""
    titles = {each.id: each.title for each in store.chats(most=MAX_CHATS)}
    if not titles:
        raise SettingsError(f"There are no chats yet. Leave out {option}.")
    found = matching(title, titles)
    if found and (not title or len({titles[each] for each in found}) == 1):  # the latest of those with one title
        return found[0]
    *names, last = [f"'{titles[each]}'" for each in (found or [*titles])[:SHOWN]]
    listed = " and ".join(filter(None, (", ".join(names), last)))
    if not found:
        raise SettingsError(f"No chat has '{title}' in its title: the latest are {listed}.")
    n, such = ("two", ":") if len(found) == 2 else (len(found), ", such as")
    raise SettingsError(f"'{title}' fits {n} chats{such} {listed}. Name one of them by its whole title.")


def matching(title: str, titles: dict[int, str]) -> Sequence[int]:
    """Return the chats that a title names: those that have it exactly, else in any case, else as their beginning, else
    anywhere.
    """
    word = title.casefold().strip()
    tests = (
        lambda each: each == title,
        lambda each: each.casefold() == word,
        lambda each: each.casefold().startswith(word),
        lambda each: word in each.casefold(),
    )
    return next((found for test in tests if (found := [number for number, each in titles.items() if test(each)])), [])
