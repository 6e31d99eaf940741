"""Comparison of the chat's model with another one on the same question.

Knows the chat's last question, and how to open a second model; draws nothing.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from app.tui.actions.models import find_here, pick
from app.tui.background.active_reply import ReplyRequest
from app.tui.background.comparison import Contestant, Report, blank, opened_whole
from app.tui.desktop.attach import attach, unattached
from app.tui.dialogs.compare_screen import CompareScreen, KeptReply
from app.tui.numbers import measured
from app.tui.shared_engine import SharedEngine
from runtime.core.errors import SettingsError
from runtime.engine import Message
from runtime.models.registry import Pair

if TYPE_CHECKING:
    from app.tui.chat_screen import ChatScreen


def compare(screen: ChatScreen, argument: str) -> None:
    """Compare with another model on the given question, or on the last one."""
    name, _, question = argument.partition(" ")
    if fault := unattached(question):
        screen.notify(fault, severity="warning", markup=False)
    question = attach(question.strip())
    if screen.session.engine is None or screen.host.is_busy:
        raise SettingsError("A reply is being written or a model loaded. Compare after that; Esc stops it.")
    if not question and not screen.branch.messages():
        raise SettingsError("There is no question yet. Ask one first, or name it: /compare model question")
    if name:
        begin(screen, question, name)
    else:
        pick(screen, "Compare with", partial(begin, screen, question))


def begin(screen: ChatScreen, question: str, name: str) -> None:
    """Show both replies as they are generated. Raises SettingsError and RegistryError."""
    pair = find_here(screen, name)
    if pair is None:
        raise SettingsError(f"{name} is not on this machine yet. /pull {name} fetches it.")
    prompt = asked(screen, question)
    contestants = [of_chat(screen, prompt), of_other(screen, pair, prompt)]

    async def kept(reply: KeptReply | None) -> None:
        if reply is not None:
            await screen.attempt(keep, screen, question, reply, pair if reply.model == pair.name else None)

    screen.app.push_screen(CompareScreen(prompt[-1].content, contestants), kept)


def asked(screen: ChatScreen, question: str) -> list[Message]:
    """Return the prompt for both models: the conversation up to the new question, or up to the last one."""
    prompt = screen.branch.prompt()
    if question:
        return [*prompt, Message("user", question)]
    while prompt and prompt[-1].role == "assistant":
        prompt.pop()
    return prompt


def of_chat(screen: ChatScreen, prompt: list[Message]) -> Contestant:
    """Return the chat's open model as a contestant."""
    engine, pair = screen.session.engine, screen.session.pair
    assert engine is not None
    return Contestant(pair.name, lambda report: engine, request(screen, pair, prompt, 0), is_borrowed=True)


def of_other(screen: ChatScreen, pair: Pair, prompt: list[Message]) -> Contestant:
    """Return another model as a contestant, opened only for this comparison."""
    session = screen.session

    def opened(report: Report) -> SharedEngine:
        return SharedEngine(session.open_engine(pair, session.options, report, seeks=False))

    return Contestant(pair.name, partial(opened_whole, opened), request(screen, pair, prompt, 1))


def request(screen: ChatScreen, pair: Pair, prompt: list[Message], side: int) -> ReplyRequest:
    """Return the request to a model, with the settings of this chat. Raises SettingsError."""
    settings, chosen = screen.session.settings, screen.branch.settings
    return ReplyRequest(blank(side), prompt, settings.sampling(pair, chosen), settings.max_tokens(pair, chosen))


async def keep(screen: ChatScreen, question: str, reply: KeptReply, other: Pair | None) -> None:
    """Add the chosen reply to the chat: to the new question, or as another version of the last reply. None stands for
    the chat's own model.
    """
    branch = screen.branch
    if question:
        branch.ask(question)
    else:
        branch.rewind_for_reply(branch.messages()[-1].id)
    message = branch.begin_reply()
    facts = {**reply.facts, "measured": measured(reply.stats), **screen.session.signature(other)}
    screen.session.store.update_message(message.id, "".join(piece.text for piece in reply.pieces), facts)
    await screen.show_chat()


COMMANDS = {"compare": compare}
