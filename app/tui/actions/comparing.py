"""Comparison of the chat's model with another one on the same question.

Knows the chat's last question, and how to open a second model; draws nothing.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from app.chats.authors import LOADS, Facts, is_other
from app.chats.pictures import Attached, with_marks
from app.chats.store import StoredMessage
from app.models.prospects import reading_seconds
from app.reply_text import marks_of, text_of
from app.tui.actions.models import checked_name, find_here, pick
from app.tui.actions.offering import show_chat
from app.tui.attach import attach, pictures_named, unattached, without_attached
from app.tui.chat import OpenChat
from app.tui.comparison import Contestant, Report, blank
from app.tui.dialogs.basic import ConfirmDialog
from app.tui.dialogs.compare_screen import CompareScreen, KeptReply
from app.tui.numbers import facts_of
from app.tui.replies import ReplyRequest, prompt_for
from app.tui.widgets.status import about
from runtime.core.errors import NoMemoryError, RegistryError, SettingsError, SlipstreamError
from runtime.engine import Engine, Message
from runtime.models.registry import Pair

NAMED = re.compile(r'(?:"([^"]*)"|(\S*))\s*(.*)', re.DOTALL)  # a model, with quotation marks or without, and a question
MOMENT = 5.0  # seconds of reading, below which nobody has to know of it before
LONG = 500  # tokens of a prompt that may take longer than a moment if no speed is known


@dataclass(frozen=True, slots=True)
class Asked:
    """A question for both models, with its pictures; without text, it is the last one of the chat."""

    text: str
    pictures: Attached


async def compare(screen: OpenChat, argument: str) -> None:
    """Compare with another model on the given question, or on the last one. Raises SettingsError."""
    quoted, bare, question = NAMED.fullmatch(argument).groups("")  # type: ignore[union-attr]  # it matches every text
    name = quoted or bare
    other = rival(screen, name) if name else None
    if fault := unattached(question):
        screen.notify(fault, severity="warning")
    given = Asked(attach(question.strip()), pictures_named(question))
    if screen.session.engine is None and screen.host.coming is None:
        raise SettingsError("No model is loaded. /model chooses one.")
    if screen.host.is_busy:
        raise SettingsError("A reply is being written or a model loaded. Compare after that; Esc stops it.")
    if not given.text and not screen.branch.messages():
        raise SettingsError("There is no question yet. Ask one first, or name it: /compare model question")

    async def take(name: str) -> None:
        await begin(screen, given, rival(screen, name))

    def checked(name: str) -> str:
        rival(screen, name)
        return name

    if other is not None:
        await begin(screen, given, other)
    else:
        pick(screen, "Compare with", take, rival=checked)


def rival(screen: OpenChat, name: str) -> Pair:
    """Return the model of that name. Raises SettingsError if there is none, it is not here, or it answers in this chat
    anyway.
    """
    try:
        checked_name(screen, name, is_second=True)
        pair = find_here(screen, name)
    except RegistryError as error:
        raise SettingsError(f"{error} /compare alone lists the models.") from error
    if pair is None:
        raise SettingsError(f"{name} is not on this machine yet. /pull {name} fetches it.")
    if screen.session.is_loaded(pair):
        raise SettingsError(f"{pair.name} answers in this chat anyway. /compare alone lists other models.")
    return pair


async def begin(screen: OpenChat, question: Asked, pair: Pair) -> None:
    """Show both replies as they are generated; if that takes more than a moment of reading first, only after a yes.
    Raises SettingsError.
    """
    prompt = asked(screen, question)
    images = *screen.branch.images(), *question.pictures.values()
    contestants = [of_chat(screen, question.text, prompt, images), of_other(screen, pair, prompt, images)]

    engine, pairs = engine_of(screen), (screen.session.pair, pair)
    if told := await asyncio.to_thread(forecast, engine, contestants[0], n_cached(screen), pairs):
        dialog = ConfirmDialog(f"Compare with {pair.name}", told, "begins", "goes back")
        screen.ask(dialog, lambda _: show(screen, question, pair, contestants))
    else:
        show(screen, question, pair, contestants)


def show(screen: OpenChat, question: Asked, pair: Pair, contestants: list[Contestant]) -> None:
    """Show both replies as they are generated, and keep the chosen one."""
    screen.session.note_compared(pair)
    asked = without_attached(question.text or last_question(screen))
    screen.ask(CompareScreen(asked, contestants), partial(keep, screen, question, pair))


def forecast(engine: Engine, own: Contestant, n_read: int, pairs: Sequence[Pair]) -> str:
    """Return what both models, the chat's one first, have to read before they answer, where that takes more than a
    moment; else "". The chat's one has read `n_read` tokens of it.
    """
    n_tokens = 0
    with suppress(SlipstreamError):  # which its reply reports as well
        n_tokens = len(engine.encode(prompt_for(engine, own.request)))
    counts = 0 if own.has_answered else max(0, n_tokens - n_read), n_tokens
    return told_before(
        [Forecast(pair.name, n, reading_seconds(pair.target)) for pair, n in zip(pairs, counts, strict=True)]
    )


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a model will have to read before it answers."""

    name: str
    n_tokens: int
    token_seconds: float  # 0.0: not known

    @property
    def seconds(self) -> float:
        """How long that takes."""
        return self.n_tokens * self.token_seconds

    @property
    def is_long(self) -> bool:
        """Whether it takes more than a moment, or may do so."""
        return self.seconds > MOMENT if self.token_seconds else self.n_tokens > LONG

    @property
    def text(self) -> str:
        """What it reads, in words."""
        time = f", which takes {about(self.seconds)}" if self.token_seconds else ""
        return f"{self.name} reads {self.n_tokens:,} tokens{time}"


def told_before(forecasts: Sequence[Forecast]) -> str:
    """Return what models will have to read one after the other, where that takes more than a moment; else ""."""
    long = [each for each in forecasts if each.is_long]
    if not long:
        return ""
    unknown = "" if all(each.token_seconds for each in long) else " How long that takes was not measured yet."
    answers = "it answers" if len(long) == 1 else "they answer"
    return f"Before {answers}, {' and then '.join(each.text for each in long)}.{unknown}"


def n_cached(screen: OpenChat) -> int:
    """Return the number of tokens of this chat that its model has read or written already."""
    stats = screen.host.numbers.reply
    is_here = screen.host.answered in [each.id for each in screen.branch.messages()]
    return stats.prompt_n + stats.predicted_n if is_here else 0


def last_question(screen: OpenChat) -> str:
    """Return the last question of the chat."""
    return next((each.content for each in reversed(screen.branch.messages()) if each.role == "user"), "")


def asked(screen: OpenChat, question: Asked) -> list[Message]:
    """Return the prompt for both models: the conversation up to the new question, or up to the last one."""
    prompt = screen.branch.prompt()
    if question.text:
        return [*prompt, Message("user", with_marks(question.text, [*question.pictures]))]
    while prompt and prompt[-1].role == "assistant":
        prompt.pop()
    return prompt


def of_chat(screen: OpenChat, question: str, prompt: list[Message], images: tuple[bytes, ...]) -> Contestant:
    """Return the chat's open model as a contestant, with its reply to the last question if that is complete."""
    engine, pair = engine_of(screen), screen.session.pair
    last = screen.branch.messages()[-1:]
    has_answered = bool(not question and last and is_complete(last[0], screen.session.signature()))
    asked = request(screen, pair, prompt, images, last[0] if has_answered else blank(0))
    return Contestant(pair.name, lambda report: engine, asked, is_borrowed=True, has_answered=has_answered)


def engine_of(screen: OpenChat) -> Engine:
    """Return the chat's open model."""
    assert screen.session.engine is not None
    return screen.session.engine


def is_complete(message: StoredMessage, signature: Facts) -> bool:
    """Return whether the message is a whole reply by the signed model, with its numbers."""
    facts = message.facts
    is_own = LOADS in facts and not is_other(facts, signature)
    return bool(message.role == "assistant" and is_own and message.content and facts.get("line") and "end" not in facts)


def of_other(screen: OpenChat, pair: Pair, prompt: list[Message], images: tuple[bytes, ...]) -> Contestant:
    """Return another model as a contestant, opened only for this comparison, and only if memory suffices for both."""
    session = screen.session

    def opened(report: Report) -> Engine:
        engine = session.open_engine(pair, session.options, report, seeks=False)
        if engine.facts.is_short:
            engine.close()
            raise NoMemoryError("There is not enough memory for two models.")
        return engine

    return Contestant(pair.name, opened, request(screen, pair, prompt, images, blank(1)))


def request(
    screen: OpenChat, pair: Pair, prompt: list[Message], images: tuple[bytes, ...], reply: StoredMessage
) -> ReplyRequest:
    """Return the request to a model, with the settings of this chat. Raises SettingsError."""
    settings, chosen = screen.session.settings, screen.branch.settings
    sampling, max_tokens = settings.sampling(pair, chosen), settings.max_tokens(pair, chosen)
    return ReplyRequest(reply, prompt, sampling, max_tokens, images=images)


async def keep(screen: OpenChat, question: Asked, other: Pair, reply: KeptReply) -> None:
    """Add the chosen reply, of the chat's model or the other one, to the chat: to the new question, or as another
    version of the last reply.
    """
    branch = screen.branch
    if question.text:
        branch.ask(question.text, pictures=question.pictures)
    else:
        branch.rewind_for_reply(branch.messages()[-1].id)
    message = branch.begin_reply()
    signature = screen.session.signature(other if reply.model == other.name else None)
    facts = {**facts_of(reply.stats), **signature, "marks": marks_of(reply.pieces)}
    screen.session.store.update_message(message.id, text_of(reply.pieces), facts)
    await show_chat(screen)


COMMANDS = {"compare": compare}
