"""Another model is asked the same, beside the one that answers.

Knows the chat's last question, and how a model is opened beside another; draws nothing.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from app.tui.actions.models import find_here, pick
from app.tui.background.active_reply import ReplyRequest
from app.tui.background.comparison import Contestant, Report, blank, opened_whole
from app.tui.background.engine_host import measured
from app.tui.desktop.attach import attach
from app.tui.dialogs.compare_screen import CompareScreen, KeptReply
from app.tui.shared_engine import SharedEngine
from runtime.core.errors import SettingsError
from runtime.engine import Message
from runtime.models.registry import Pair

if TYPE_CHECKING:
    from app.tui.chat_screen import ChatScreen


def compare(screen: ChatScreen, argument: str) -> None:
    """Has another model answer, too: a question that is given, or the last one."""
    name, _, question = argument.partition(" ")
    question = attach(question.strip())
    if screen.session.engine is None or screen.host.is_busy:
        raise SettingsError("A reply or a model is still to come. Compare when it is there; Esc stops it.")
    if not question and not screen.branch.messages():
        raise SettingsError("There is no question yet. Ask one first, or name it: /compare model question")
    if name:
        begin(screen, question, name)
    else:
        pick(screen, "Compare with", partial(begin, screen, question))


def begin(screen: ChatScreen, question: str, name: str) -> None:
    """Shows both answers as they come. Raises SettingsError and RegistryError."""
    pair = find_here(name)
    if pair is None:
        raise SettingsError(f"{name} is not on this machine yet. /pull {name} fetches it.")
    prompt = asked(screen, question)
    contestants = [of_chat(screen, prompt), of_other(screen, pair, prompt)]

    async def kept(reply: KeptReply | None) -> None:
        if reply is not None:
            await screen.attempt(keep, screen, question, reply)

    screen.app.push_screen(CompareScreen(prompt[-1].content, contestants), kept)


def asked(screen: ChatScreen, question: str) -> list[Message]:
    """What both are asked: the conversation up to a new question, or up to the last one that was asked."""
    prompt = screen.branch.prompt()
    if question:
        return [*prompt, Message("user", question)]
    while prompt and prompt[-1].role == "assistant":
        prompt.pop()
    return prompt


def of_chat(screen: ChatScreen, prompt: list[Message]) -> Contestant:
    """The model that answers in the chat, as it is open."""
    engine, pair = screen.session.engine, screen.session.pair
    assert engine is not None
    return Contestant(pair.name, lambda report: engine, request(screen, pair, prompt, 0), is_borrowed=True)


def of_other(screen: ChatScreen, pair: Pair, prompt: list[Message]) -> Contestant:
    """A model that is opened for this question."""
    session = screen.session

    def opened(report: Report) -> SharedEngine:
        return SharedEngine(session.open_engine(pair, session.options, report))

    return Contestant(pair.name, partial(opened_whole, opened), request(screen, pair, prompt, 1))


def request(screen: ChatScreen, pair: Pair, prompt: list[Message], side: int) -> ReplyRequest:
    """What a model is asked, with what was set in this chat. Raises SettingsError."""
    settings, chosen = screen.session.settings, screen.branch.settings
    return ReplyRequest(blank(side), prompt, settings.sampling(pair, chosen), settings.max_tokens(pair, chosen))


async def keep(screen: ChatScreen, question: str, reply: KeptReply) -> None:
    """Adds the reply that was chosen to the chat: to the new question, or as a version of the last one's."""
    branch = screen.branch
    if question:
        branch.ask(question)
    else:
        branch.rewind_for_reply(branch.messages()[-1].id)
    message = branch.begin_reply()
    facts = reply.facts | measured(reply.model, reply.stats)
    screen.session.store.update_message(message.id, "".join(piece.text for piece in reply.pieces), facts)
    await screen.show_chat()


COMMANDS = {"compare": compare}
