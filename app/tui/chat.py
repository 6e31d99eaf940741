"""The chat on screen: its widgets and its state, which the actions read and change.

Knows every part of the screen; `chat_screen` routes messages to the actions, `widgets` have the appearance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from inspect import isawaitable
from typing import TypeVar

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Footer, Static

from app.chats.pictures import noted, pictures_in
from app.terminal import clean
from app.tui.arguments import arguments_in
from app.tui.attach import attach, pictures_named
from app.tui.between_replies import NextPrompt, ReadingAhead, Unsent, complete_words
from app.tui.completion import complete
from app.tui.downloads import Downloads
from app.tui.editor_access import EditorAccess
from app.tui.engine_host import EngineHost
from app.tui.session import Session
from app.tui.widgets.composer import Composer
from app.tui.widgets.panel import SidePanel
from app.tui.widgets.status import StatusLine
from app.tui.widgets.transcript import Transcript
from runtime.core.errors import SlipstreamError
from runtime.engine import Beginning, ChatPrompt, with_images
from runtime.engine.engine import Ask
from runtime.models.registry import titled

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Offered:
    """What the line above the prompt offers: a sentence and a command; without a command, only a remark."""

    sentence: str
    command: str = ""
    argument: str = ""
    is_author: bool = False  # whether it is about the model that wrote the chat


class OpenChat(Screen[None]):
    """One chat on screen, and the engine that answers in it."""

    def __init__(self, session: Session, chat: int | None = None) -> None:
        super().__init__()
        self.session = session
        self.branch = session.branch(chat)
        self.waiting: Callable[[OpenChat], object] | None = None  # the action to run once the engine is free
        self.numbers_shown = 0.0  # time of the last update of the numbers (time.monotonic)
        self.offered: Offered | None = None
        self.downloads, self.editors = Downloads(), EditorAccess(session)
        self.transcript, self.panel, self.status = Transcript(self.branch, id="transcript"), SidePanel(), StatusLine()
        known = partial(complete, arguments=arguments_in(session, lambda: self.branch.settings))
        self.composer = Composer(session.store.prompts(), known, self.blind_model, self.rewritten_pictures)
        self.prompt, self.queue = self.composer.prompt, self.composer.queue
        self.host = EngineHost(session, self.prompt.gap)

    def compose(self) -> ComposeResult:
        """Yield the widgets from top to bottom, then the invisible ones."""
        yield Static(id="top", markup=False)
        with Horizontal(id="middle"):
            yield self.transcript
            yield self.panel
        yield self.transcript.below
        yield self.status
        yield self.composer
        yield Footer()
        yield self.host
        yield self.downloads
        yield self.editors
        yield Unsent(self.session.store, self.composer.unsent, self.prompt.begin)
        yield ReadingAhead(self.session, partial(next_prompt, self), partial(reading_request, self))

    def blind_model(self) -> str:
        """Return the name of the loaded model if it cannot see pictures, else ""."""
        engine = self.session.engine
        return "" if engine is None or engine.facts.vision else titled(self.session.pair)

    def rewritten_pictures(self) -> list[str]:
        """Return the names of the pictures of the question that is being rewritten."""
        view = next((each for each in self.transcript.views("user") if each.message_id == self.prompt.rewritten), None)
        return [each.name for each in pictures_in(view.facts)] if view else []

    def show_title(self) -> None:
        """Show the names of the answering pair and of the chat, and the settings that differ from the defaults."""
        title, is_there = clean(self.branch.title) or "new chat", self.session.engine or self.host.coming
        name = clean(titled(self.session.pair)) if is_there else "no model"
        told = self.session.settings.told(self.session.pair, self.branch.settings, self.branch.system)
        self.query_one("#top", Static).update(Content(" · ".join(["Slipstream", name, *told, title])))

    async def attempt(self, action: Callable[..., object], *arguments: object) -> None:
        """Run an action and show its error if it fails."""
        try:
            done = action(*arguments)
            if isawaitable(done):
                await done
        except SlipstreamError as error:
            self.notify(str(error), severity="error")

    def ask(
        self, dialog: Screen[T], action: Callable[[T], object], otherwise: Callable[[], object] = lambda: None
    ) -> None:
        """Show a dialog, and run an action with what it returns; without anything, or after a no, `otherwise`."""

        async def answered(result: T | None) -> None:
            if result is None or result is False:
                await self.attempt(otherwise)
            else:
                await self.attempt(action, result)

        self.app.push_screen(dialog, answered)


def next_prompt(chat: OpenChat) -> NextPrompt | None:
    """Return what is known of the next prompt; None while the engine has something else to do."""
    engine, branch = chat.session.engine, chat.branch
    if engine is None or not engine.facts.reads_ahead or chat.host.is_busy or chat.prompt.is_rewriting:
        return None
    typed = chat.prompt.unfolded()
    text = "" if typed.startswith("/") else complete_words(typed)
    if not (text or branch.leaf or branch.system):
        return None
    return NextPrompt((branch.id, branch.leaf, branch.system), text)


def reading_request(chat: OpenChat, text: str) -> Ask:
    """Return the request for reading the prompt of a question that begins with this text. Raises SettingsError."""
    pictures = pictures_named(text)
    *before, question = chat.branch.prompt(attach(text + " a"), pictures)
    sees = chat.session.engine is not None and chat.session.engine.facts.vision
    images = [*chat.branch.images(), *pictures.values()] if sees else []
    other = replace(question, content=question.content.removesuffix(" a") + "\n1")
    begun = Beginning(*(noted(ChatPrompt((*before, each), plain=True), images) for each in (question, other)))
    sampling = chat.session.settings.sampling(chat.session.pair, chat.branch.settings)
    return Ask(with_images(begun, images), sampling, 0, is_ahead=True)
