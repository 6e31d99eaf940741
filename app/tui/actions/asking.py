"""Questions are written (from a template, an earlier one, the text of an editor), sent, rewritten or answered again;
replies start, continue, or wait for the engine.

Knows the branch and the engine host; shows everything through the screen's widgets.
"""

from __future__ import annotations

from functools import partial

from textual.events import Key, Paste

from app.chats.branch import NO_ROOM
from app.chats.store import StoredMessage
from app.tui.actions import chats, models, offering
from app.tui.actions.offering import show_chat
from app.tui.attach import attach, pictures_named, unnamed
from app.tui.chat import OpenChat
from app.tui.chat_settings import ASK, LEAVE_OUT, WHEN_FULL
from app.tui.completion import parse
from app.tui.dialogs.basic import PickDialog, narrowing
from app.tui.edits import expected_in
from app.tui.presets import TEMPLATE, keep_template, read_template, template_names
from app.tui.replies import ReplyRequest
from app.tui.terminal import write_in_editor
from app.tui.widgets.prompt import is_letter
from runtime.core.errors import SettingsError

EXCERPT = 200  # characters of a text in a list
NONE_YET = "There is no template yet. /template review Review this code: saves a text, which /template review inserts."


async def ask(screen: OpenChat, text: str, typed: str, replaces: int | None = None) -> None:
    """Send the written text as a question, or in place of the message `replaces`; it waits if a reply is unfinished.
    `typed` is its part that was not pasted.
    """
    if not text:
        await open_latest_if_new(screen)
        return
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
        await add(screen, text, typed, replaces)


async def add(screen: OpenChat, text: str, typed: str, replaces: int | None = None) -> None:
    """Add a question, or replace one, with the files that it names, and start the reply to it."""
    branch, question = screen.branch, attach(text)
    if replaces is None:
        branch.ask(question, typed, pictures_named(text))
    else:
        branch.ask_instead(replaces, question, pictures_named(text, branch.pictures_of(replaces)))
    await answer(screen)


async def ask_next(screen: OpenChat) -> None:
    """Ask the oldest waiting question, if there is one."""
    if (text := screen.queue.take_next()) is not None:
        await add(screen, text, text)


async def answer(screen: OpenChat) -> None:
    """Start a reply to the last question as soon as the engine is free."""
    await show_chat(screen)
    if screen.host.is_busy:
        screen.waiting = answer
        return
    message = screen.branch.begin_reply(screen.session.signature())
    await screen.transcript.add(message)
    start_reply(screen, message)


def start_reply(screen: OpenChat, message: StoredMessage) -> None:
    """Start generating the rest of that message."""
    settings, pair, chosen = screen.session.settings, screen.session.pair, screen.branch.settings
    sampling, max_tokens = settings.sampling(pair, chosen), settings.max_tokens(pair, chosen)
    expected, leaves_out = expected_in(screen.branch.messages()), settings.leaves_out(pair, chosen)
    prompt, images = screen.branch.prompt(), screen.branch.images()
    request = ReplyRequest(message, prompt, sampling, max_tokens, expected, leaves_out, images)
    screen.transcript.anchor()
    screen.host.start(request)
    offering.look(screen)  # what was offered goes
    screen.status.begin_reading()


async def regenerate_message(screen: OpenChat, message: int) -> None:
    """Answer that question again, or generate another reply in place of that one."""
    if screen.host.is_busy:
        screen.notify("A reply is being written or a model loaded. Esc stops a reply.")
    elif screen.branch.rewind_for_reply(message):
        settings = screen.session.settings
        if settings.values(screen.session.pair, screen.branch.settings)["temperature"] == 0:
            screen.notify("At temperature 0 the reply would be the same. /set temperature 0.8 allows others.")
        await answer(screen)


async def regenerate(screen: OpenChat, argument: str) -> None:
    """Answer the last question again."""
    if messages := screen.branch.messages():
        await regenerate_message(screen, messages[-1].id)


async def continue_reply(screen: OpenChat, argument: str) -> None:
    """Continue the last reply where it stopped; in a new chat, the last chat."""
    last = screen.branch.messages()[-1:]
    if await open_latest_if_new(screen):
        return
    if screen.host.is_busy or not last or not may_go_on(last[0]):
        screen.notify("There is no reply to continue.")
    else:
        start_reply(screen, last[0])


async def open_latest_if_new(screen: OpenChat) -> bool:
    """Open the last chat if this one is new; return whether that was done."""
    latest = screen.session.store.chats(most=1) if screen.branch.id is None else []
    for chat in latest:
        await chats.open_chat(screen, chat.id)
    return bool(latest)


def may_go_on(message: StoredMessage) -> bool:
    """Return whether the message is a reply that can be continued: it has text, or ended without any."""
    return message.role == "assistant" and bool(message.content or "end" in message.facts)


def room(screen: OpenChat, argument: str) -> None:
    """Leave the oldest turns out from now on, in this chat or in all; a reply that had no room continues."""
    settings = screen.session.settings
    changed, _ = settings.change(f"{argument} {WHEN_FULL} {LEAVE_OUT}", screen.session.pair, screen.branch.settings)
    screen.branch.set_settings(changed)
    screen.show_title()
    screen.notify(f"The oldest turns are left out when the context is full. /set {WHEN_FULL} {ASK} changes that.")
    if (last := screen.branch.messages()[-1:]) and NO_ROOM in last[0].facts and not screen.host.is_busy:
        start_reply(screen, last[0])


def edit(screen: OpenChat, argument: str) -> None:
    """Put the last question into the prompt for rewriting."""
    if questions := screen.transcript.views("user"):
        screen.prompt.begin_rewriting(questions[-1].message_id, questions[-1].text)


async def go_on(screen: OpenChat) -> None:
    """Run the waiting action if the engine is free, answer editors that wait for it, ask the next waiting question."""
    if screen.waiting is not None and not screen.host.is_busy:
        action, screen.waiting = screen.waiting, None
        await screen.attempt(action, screen)
    if not screen.host.is_busy:
        models.answer_editors(screen)
    if screen.waiting is None and not screen.host.is_busy:
        await screen.attempt(ask_next, screen)


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


COMMANDS = {
    "regenerate": regenerate, "continue": continue_reply, "room": room, "edit": edit, "template": template,
    "history": history, "editor": editor,
}  # fmt: skip
