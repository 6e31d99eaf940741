"""Events of the engine, downloads and editors are shown; then the waiting actions run.

Knows the messages of `background` and the screen's widgets; starts nothing by itself.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from app.chats.branch import NO_ROOM
from app.models.prospects import reading_seconds
from app.tui.actions import asking, choosing, first_steps, models, offering, views
from app.tui.background import events
from app.tui.numbers import sentence
from runtime.core.backend import SERVERS

if TYPE_CHECKING:
    from app.tui.chat_screen import ChatScreen

PLAIN = "This model has no chat template. It gets plain turns (User:, Assistant:), and no format is enforced."
NUMBERS = 0.25  # seconds between two updates of the numbers during a reply


def show_loading(screen: ChatScreen, event: events.ModelLoading) -> None:
    """Show how much of the file is read; after that the model is measured."""
    if screen.host.coming is None:
        return
    name = screen.host.coming.name
    if event.part == SERVERS:
        screen.status.show_progress(f"Waiting for {name}, which is still loading its model")
    elif screen.host.coming.upstream:
        screen.status.show_progress(f"Asking {name}")
    elif event.share < 1:
        screen.status.show_progress(f"Loading the {event.part} model of {name}", event.share)
    else:
        screen.status.show_progress(f"Measuring how fast {name} is here")


async def use_model(screen: ChatScreen) -> None:
    """Show the new model as ready, and start the waiting question and the server for editors."""
    screen.status.end_progress()
    screen.status.reading.expect(reading_seconds(screen.session.pair.target))
    screen.show_title()
    offering.look_again(screen)
    views.show_ready(screen)
    models.answer_editors(screen)
    say_what_lacks(screen)
    await go_on(screen)
    screen.run_worker(first_steps.offer(screen), group="first steps", exclusive=True)


def say_what_lacks(screen: ChatScreen) -> None:
    """Show a note for a model without a chat template, unless there is a more important sentence."""
    engine = screen.session.engine
    shown = screen.offered or sentence(views.shown_numbers(screen), engine)
    if engine is not None and not (engine.facts.template or shown):
        screen.session.note(PLAIN)
        if not screen.session.store.problem:
            screen.status.show_sentence(PLAIN)


async def show_failure(screen: ChatScreen, event: events.ModelFailed) -> None:
    """Show the reason, and the model that answers now: the one that was open before, or none."""
    screen.status.end_progress()
    screen.show_title()
    if screen.session.engine is None:
        show_none(screen, event.reason)
        return
    screen.show_numbers()
    screen.notify(f"{event.reason} {screen.session.pair.name} still answers.", severity="error")
    models.serve_again(screen)
    await go_on(screen)


def show_none(screen: ChatScreen, reason: str) -> None:
    """Show why no model answers, and the list of models."""
    screen.waiting = None
    screen.composer.take_back()
    screen.status.show_sentence(f"{reason} Ctrl+L chooses another model.")
    if screen.is_current:
        choosing.pick_any(screen, reason)


async def show_growth(screen: ChatScreen) -> None:
    """Show the new text of the reply, and its numbers from time to time."""
    if (reply := screen.host.reply) is None:
        return
    screen.status.end_progress()
    await screen.transcript.append(reply.message_id, screen.host.collect())
    if time.monotonic() - screen.numbers_shown >= NUMBERS:
        screen.numbers_shown = time.monotonic()
        screen.show_numbers()


async def settle_reply(screen: ChatScreen, event: events.ReplyEnded) -> None:
    """Show the complete reply with its numbers, then start the waiting action. After a failure or with a full context,
    waiting messages return to the prompt.
    """
    screen.status.end_progress()
    await screen.transcript.settle(event.message_id, event.pieces, event.facts)
    offering.look(screen)
    if event.remark and screen.offered is None:
        screen.status.show_sentence(event.remark)
        if not event.pieces:
            screen.status.show_numbers([])  # a model that failed to answer is not shown as ready
    if event.has_failed or NO_ROOM in event.facts:
        screen.composer.take_back()
    await go_on(screen)
    if not screen.host.is_busy:
        screen.host.titles.plan(screen.branch)


async def go_on(screen: ChatScreen) -> None:
    """Run the waiting action if the engine is free, answer editors that wait for it, ask the next waiting question."""
    if screen.waiting is not None and not screen.host.is_busy:
        action, screen.waiting = screen.waiting, None
        await screen.attempt(action, screen)
    if not screen.host.is_busy:
        models.answer_editors(screen)
    if screen.waiting is None and not screen.host.is_busy:
        await screen.attempt(asking.ask_next, screen)
