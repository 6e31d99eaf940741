"""Questions are sent, rewritten or answered again; replies start, continue, or wait for the engine.

Knows the branch and the engine host; shows everything through the screen's widgets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from textual.widget import Widget

from app.chats.branch import NO_ROOM
from app.chats.store import StoredMessage
from app.tui.actions import chats, offering
from app.tui.background.active_reply import ReplyRequest
from app.tui.background.reading_ahead import NextPrompt, ReadingAhead, complete_words
from app.tui.background.unsent import Unsent
from app.tui.chat_settings import ASK, LEAVE_OUT, WHEN_FULL
from app.tui.desktop.attach import attach, unnamed
from app.tui.edits import expected_in
from runtime.engine import Beginning, ChatPrompt
from runtime.engine.engine import Ask

if TYPE_CHECKING:
    from app.tui.chat_screen import ChatScreen


async def ask(screen: ChatScreen, text: str, typed: str, replaces: int | None = None) -> None:
    """Send the written text as a question, or in place of the message `replaces`; it waits if a reply is unfinished.
    `typed` is its part that was not pasted.
    """
    if not text:
        await open_latest_if_new(screen)
        return
    question = attach(text)
    if screen.session.engine is None and screen.host.coming is None:
        screen.notify("No model is loaded. /model chooses one.", severity="warning")
        return
    is_early = screen.host.is_replying or screen.waiting is not None
    if is_early and replaces is not None:
        screen.notify("A reply is being written. Esc stops it.")
        return
    if fault := unnamed(typed):
        screen.notify(fault)
    screen.prompt.remember()
    screen.prompt.begin()
    screen.prompt.end_rewriting()
    if is_early:
        screen.queue.add(text)
    else:
        await add(screen, question, typed, replaces)


async def add(screen: ChatScreen, question: str, typed: str, replaces: int | None = None) -> None:
    """Add a question, or replace one, and start the reply to it."""
    if replaces is None:
        screen.branch.ask(question, typed)
    else:
        screen.branch.ask_instead(replaces, question)
    await answer(screen)


async def ask_next(screen: ChatScreen) -> None:
    """Ask the oldest waiting question, if there is one."""
    if (text := screen.queue.take_next()) is not None:
        await add(screen, attach(text), text)


async def answer(screen: ChatScreen) -> None:
    """Start a reply to the last question as soon as the engine is free."""
    await screen.show_chat()
    if screen.host.is_busy:
        screen.waiting = answer
        return
    message = screen.branch.begin_reply(screen.session.signature())
    await screen.transcript.add(message)
    start_reply(screen, message)


def start_reply(screen: ChatScreen, message: StoredMessage) -> None:
    """Start generating the rest of that message."""
    settings, pair, chosen = screen.session.settings, screen.session.pair, screen.branch.settings
    sampling, max_tokens = settings.sampling(pair, chosen), settings.max_tokens(pair, chosen)
    expected, leaves_out = expected_in(screen.branch.messages()), settings.leaves_out(pair, chosen)
    request = ReplyRequest(message, screen.branch.prompt(), sampling, max_tokens, expected, leaves_out)
    screen.transcript.anchor()
    screen.host.start(request)
    offering.look(screen)  # what was offered goes
    screen.status.begin_reading()


def followers(screen: ChatScreen) -> Iterator[Widget]:
    """Yield the invisible widgets that follow what is typed."""
    yield Unsent(screen.session.store, screen.composer.unsent, screen.prompt.begin)
    yield ReadingAhead(screen.session, partial(next_prompt, screen), partial(reading_request, screen))


def next_prompt(screen: ChatScreen) -> NextPrompt | None:
    """Return what is known of the next prompt; None while the engine has something else to do."""
    engine, branch = screen.session.engine, screen.branch
    if engine is None or not engine.facts.reads_ahead or screen.host.is_busy or screen.prompt.is_rewriting:
        return None
    typed = screen.prompt.unfolded()
    text = "" if typed.startswith("/") else complete_words(typed)
    if not (text or branch.leaf or branch.system):
        return None
    return NextPrompt((branch.id, branch.leaf, branch.system), text)


def reading_request(screen: ChatScreen, text: str) -> Ask:
    """Return the request for reading the prompt of a question that begins with this text. Raises SettingsError."""
    *before, question = screen.branch.prompt(attach(text + " a"))
    other = replace(question, content=question.content.removesuffix(" a") + "\n1")
    prompt = Beginning(*(ChatPrompt((*before, each), plain=True) for each in (question, other)))
    sampling = screen.session.settings.sampling(screen.session.pair, screen.branch.settings)
    return Ask(prompt, sampling, 0, is_ahead=True)


async def regenerate_message(screen: ChatScreen, message: int) -> None:
    """Answer that question again, or generate another reply in place of that one."""
    if screen.host.is_busy:
        screen.notify("A reply is being written or a model loaded. Esc stops a reply.")
    elif screen.branch.rewind_for_reply(message):
        settings = screen.session.settings
        if settings.values(screen.session.pair, screen.branch.settings)["temperature"] == 0:
            screen.notify("At temperature 0 the reply would be the same. /set temperature 0.8 allows others.")
        await answer(screen)


async def regenerate(screen: ChatScreen, argument: str) -> None:
    """Answer the last question again."""
    if messages := screen.branch.messages():
        await regenerate_message(screen, messages[-1].id)


async def continue_reply(screen: ChatScreen, argument: str) -> None:
    """Continue the last reply where it stopped; in a new chat, the last chat."""
    last = screen.branch.messages()[-1:]
    if await open_latest_if_new(screen):
        return
    if screen.host.is_busy or not last or not may_go_on(last[0]):
        screen.notify("There is no reply to continue.")
    else:
        start_reply(screen, last[0])


async def open_latest_if_new(screen: ChatScreen) -> bool:
    """Open the last chat if this one is new; return whether that was done."""
    latest = screen.session.store.chats(most=1) if screen.branch.id is None else []
    for chat in latest:
        await chats.open_chat(screen, chat.id)
    return bool(latest)


def may_go_on(message: StoredMessage) -> bool:
    """Return whether the message is a reply that can be continued: it has text, or ended without any."""
    return message.role == "assistant" and bool(message.content or "end" in message.facts)


def room(screen: ChatScreen, argument: str) -> None:
    """Leave the oldest turns out from now on, in this chat or in all; a reply that had no room continues."""
    settings = screen.session.settings
    changed, _ = settings.change(f"{argument} {WHEN_FULL} {LEAVE_OUT}", screen.session.pair, screen.branch.settings)
    screen.branch.set_settings(changed)
    screen.show_title()
    screen.notify(f"The oldest turns are left out when the context is full. /set {WHEN_FULL} {ASK} changes that.")
    if (last := screen.branch.messages()[-1:]) and NO_ROOM in last[0].facts and not screen.host.is_busy:
        start_reply(screen, last[0])


def edit(screen: ChatScreen, argument: str) -> None:
    """Put the last question into the prompt for rewriting."""
    if questions := screen.transcript.views("user"):
        screen.prompt.begin_rewriting(questions[-1].message_id, questions[-1].text)


COMMANDS = {"regenerate": regenerate, "continue": continue_reply, "room": room, "edit": edit}
