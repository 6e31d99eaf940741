"""A question is sent, rewritten or answered anew; a reply begins, goes on, or waits for the engine.

Knows the branch and what the engine host must be asked; shows nothing but through the screen's widgets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.chats.branch import NO_ROOM
from app.chats.store import StoredMessage
from app.tui.actions import offering
from app.tui.background.active_reply import ReplyRequest
from app.tui.chat_settings import ASK, LEAVE_OUT, WHEN_FULL
from app.tui.desktop.attach import attach
from app.tui.edits import expected_in

if TYPE_CHECKING:
    from app.tui.chat_screen import ChatScreen

READING = "Reading the prompt"


async def ask(screen: ChatScreen, text: str, replaces: int | None = None) -> None:
    """Takes what is written as a question, or as one in another's place; it waits where a reply is still to come."""
    question = attach(text)
    if screen.session.engine is None and screen.host.coming is None:
        screen.notify("No model is loaded, so nobody can answer. /model chooses one.", severity="warning")
        return
    is_early = screen.host.is_replying or screen.waiting is not None
    if is_early and replaces is not None:
        screen.notify("A reply is still to come. Esc stops it.")
        return
    screen.prompt.remember()
    screen.prompt.begin()
    screen.prompt.end_rewriting()
    if is_early:
        screen.queue.add(text)
    else:
        await add(screen, question, replaces)


async def add(screen: ChatScreen, question: str, replaces: int | None = None) -> None:
    """Adds a question, or one in another's place, and has it answered."""
    if replaces is None:
        screen.branch.ask(question)
    else:
        screen.branch.ask_instead(replaces, question)
    await answer(screen)


async def ask_next(screen: ChatScreen) -> None:
    """Asks what waits longest, if anything does."""
    if (text := screen.queue.take_next()) is not None:
        await add(screen, attach(text))


async def answer(screen: ChatScreen) -> None:
    """Begins a reply to the last question, as soon as the engine is free."""
    await screen.show_chat()
    if screen.host.is_busy:
        screen.waiting = answer
        return
    message = screen.branch.begin_reply()
    await screen.transcript.add(message)
    start_reply(screen, message)


def start_reply(screen: ChatScreen, message: StoredMessage) -> None:
    """Has the engine write the rest of that message."""
    settings, pair, chosen = screen.session.settings, screen.session.pair, screen.branch.settings
    sampling, max_tokens = settings.sampling(pair, chosen), settings.max_tokens(pair, chosen)
    expected, leaves_out = expected_in(screen.branch.messages()), settings.leaves_out(pair, chosen)
    request = ReplyRequest(message, screen.branch.prompt(), sampling, max_tokens, expected, leaves_out)
    offering.look(screen)
    screen.transcript.anchor()
    screen.status.show_progress(READING, 0.0)
    screen.host.start(request)


async def regenerate_message(screen: ChatScreen, message: int) -> None:
    """Has that question answered once more, or another reply made in that reply's place."""
    if screen.host.is_busy:
        screen.notify("A reply or a model is still to come. Esc stops a reply.")
    elif screen.branch.rewind_for_reply(message):
        settings = screen.session.settings
        if settings.values(screen.session.pair, screen.branch.settings)["temperature"] == 0:
            screen.notify("At temperature 0 the reply is the same again. /set temperature 0.8 makes others possible.")
        await answer(screen)


async def regenerate(screen: ChatScreen, argument: str) -> None:
    """Has the last question answered once more."""
    if messages := screen.branch.messages():
        await regenerate_message(screen, messages[-1].id)


def continue_reply(screen: ChatScreen, argument: str) -> None:
    """Has the last reply go on where it stopped."""
    last = screen.branch.messages()[-1:]
    if screen.host.is_busy or not last or not may_go_on(last[0]):
        screen.notify("There is no reply that could go on now.")
    else:
        start_reply(screen, last[0])


def may_go_on(message: StoredMessage) -> bool:
    """Is it a reply that has begun, or of which nothing came?"""
    return message.role == "assistant" and bool(message.content or "end" in message.facts)


def room(screen: ChatScreen, argument: str) -> None:
    """Leaves the oldest turns out from now on, in this chat or in all; a reply that had no room goes on."""
    settings = screen.session.settings
    changed, _ = settings.change(f"{argument} {WHEN_FULL} {LEAVE_OUT}", screen.session.pair, screen.branch.settings)
    screen.branch.set_settings(changed)
    screen.show_title()
    screen.notify(f"The oldest turns are left out when the context is full. /set {WHEN_FULL} {ASK} changes that.")
    if (last := screen.branch.messages()[-1:]) and NO_ROOM in last[0].facts and not screen.host.is_busy:
        start_reply(screen, last[0])


def edit(screen: ChatScreen, argument: str) -> None:
    """Puts the last question into the prompt, to be rewritten."""
    if questions := screen.transcript.views("user"):
        screen.prompt.begin_rewriting(questions[-1].message_id, questions[-1].text)


COMMANDS = {"regenerate": regenerate, "continue": continue_reply, "room": room, "edit": edit}
