"""The chat screen: composes the widgets, and routes what they, the engine and the person say to one another.

Knows every part of the screen; what is done is told in `actions`, how it looks in `widgets`. Whatever changes the chat
is done one after the other, in this screen's turn.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import isawaitable
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Footer, Markdown, Static

from app.tui.actions import asking, chats, following, messages, models, offering, views
from app.tui.actions.arguments import arguments_in
from app.tui.actions.dispatch import HANDLERS
from app.tui.background import events
from app.tui.background.downloads import DownloadProgress, Downloads
from app.tui.background.editor_access import EditorAccess
from app.tui.background.engine_host import EngineHost
from app.tui.background.titles import Titles
from app.tui.background.unsent import Unsent
from app.tui.commands import bindings, parse
from app.tui.completion import complete
from app.tui.pieces import clean
from app.tui.session import Session
from app.tui.widgets.composer import Composer
from app.tui.widgets.message_view import MessageView
from app.tui.widgets.offers import OfferList
from app.tui.widgets.panel import SidePanel
from app.tui.widgets.prompt import PromptBox
from app.tui.widgets.status import StatusLine
from app.tui.widgets.transcript import Transcript
from runtime.core.errors import SlipstreamError

WIDE = 120  # columns from which on the graphs are there at once


class ChatScreen(Screen[None]):
    """One chat on screen, and one engine that answers in it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings(),
        Binding("escape", "stop", "Stop", id="chat.stop", priority=True, show=False),
        Binding(offering.KEY, "take_offered", "What is offered", id=offering.ID, priority=True, show=False),
        # Enter where the terminal cannot tell them apart; Ctrl+L is the key that is told of
        Binding("ctrl+m", "command('model')", "Model", show=False, priority=True),
        Binding("ctrl+home", "go_to('first')", "To the first message", id="chat.first", priority=True, show=False),
        Binding("ctrl+end", "go_to('last')", "To the last message", id="chat.last", priority=True, show=False),
        Binding("home", "go_to('first')", "To the first message", show=False),
        Binding("end", "go_to('last')", "To the last message", show=False),
        Binding("pageup", "scroll_chat(-1)", "Scroll up", id="chat.up", priority=True, show=False),
        Binding("pagedown", "scroll_chat(1)", "Scroll down", id="chat.down", priority=True, show=False),
    ]

    class CommandChosen(Message):
        """A command was chosen by key or in the palette."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session = session
        self.branch = session.branch()
        self.waiting: Callable[[ChatScreen], object] | None = None  # what is to be done once the engine is free
        self.numbers_shown = 0.0  # when
        self.offered: offering.Offered | None = None  # by the line above the prompt
        self.downloads, self.editors = Downloads(), EditorAccess(session)
        self.transcript, self.panel, self.status = Transcript(self.branch, id="transcript"), SidePanel(), StatusLine()
        known = partial(complete, arguments=arguments_in(session, lambda: self.branch.settings))
        self.composer = Composer(session.store.prompts(), known)
        self.prompt, self.queue = self.composer.prompt, self.composer.queue
        self.host = EngineHost(session, self.prompt.gap)

    def compose(self) -> ComposeResult:
        """From top to bottom; then what is not seen."""
        yield Static(id="top")
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

    async def on_mount(self) -> None:
        """The model loads behind an empty chat."""
        self.prompt.focus()
        self.set_class(self.app.size.width >= WIDE, "-panel")
        models.load(self, self.session.pair)
        await self.show_chat()
        if remark := self.session.store.remark:
            self.session.note(remark)
            self.notify(remark, severity="warning", markup=False)

    async def show_chat(self, at: int | None = None) -> None:
        """Shows the branch, at its end or with the focus at a message of it."""
        await self.transcript.show(self.branch, at)
        self.show_title()
        offering.look(self)

    def show_title(self) -> None:
        """Shows the names of the pair that answers and of the chat, and what was set otherwise than usual."""
        title, is_there = clean(self.branch.title) or "new chat", self.session.engine or self.host.coming
        name = self.session.pair.name if is_there else "no model"
        told = self.session.settings.told(self.session.pair, self.branch.settings, self.branch.system)
        self.query_one("#top", Static).update(Content(" · ".join(["Slipstream", name, *told, title])))

    @on(events.MemoryChanged)
    def show_numbers(self) -> None:
        """Shows the numbers of the last reply on screen, and what must not be overlooked."""
        views.show_numbers(self)

    async def attempt(self, action: Callable[..., object], *arguments: object) -> None:
        """Does something; what is wrong with it is said."""
        try:
            done = action(*arguments)
            if isawaitable(done):
                await done
        except SlipstreamError as error:
            self.notify(str(error), severity="error", markup=False)

    # From the person

    @on(PromptBox.Sent)
    async def take_text(self, event: PromptBox.Sent) -> None:
        """Does a command or sends a question; a space before a slash makes it a question."""
        await self.attempt(self._do_or_ask, event)

    async def _do_or_ask(self, event: PromptBox.Sent) -> None:
        command = parse(event.text) if not event.text.startswith(" ") else None
        if command is None:
            await asking.ask(self, event.text.strip(), event.replaces)
        else:
            self.prompt.remember()
            self.prompt.begin()
            await self.attempt(HANDLERS[command[0].name], self, command[1])

    @on(OfferList.Taken)
    async def take_offer(self, event: OfferList.Taken) -> None:
        """Does what a line of an empty chat stands for."""
        self.prompt.focus()
        await self.attempt(self._do_or_ask, PromptBox.Sent(self.prompt, event.text, None))

    def action_command(self, name: str) -> None:
        """Has a command done that was chosen by key or in the palette."""
        self.post_message(self.CommandChosen(name))

    @on(CommandChosen)
    async def do_command(self, event: CommandChosen) -> None:
        """Does a command without an argument."""
        await self.attempt(HANDLERS[event.name], self, "")

    async def action_take_offered(self) -> None:
        """Does what the line above the prompt offers."""
        if self.offered is None:
            self.notify("Nothing is offered now.")
        else:
            await self.attempt(HANDLERS[self.offered.command], self, "")

    def action_stop(self) -> None:
        """Ends what came last: suggestions, messages that wait, the reply, the rewriting of one, or a download."""
        if self.prompt.end_suggestions():
            return
        if self.queue.texts:
            self.composer.take_back()
        elif self.host.is_replying or self.waiting is not None:
            self.host.cancel()
            self.waiting = None
        elif self.host.coming is not None and self.session.engine is not None:
            models.give_up(self)
        elif self.prompt.is_rewriting:
            self.prompt.end_rewriting()
            self.prompt.begin()
        else:
            self.downloads.pause()
        self.prompt.focus()

    def action_scroll_chat(self, pages: int) -> None:
        """Scrolls without leaving the prompt."""
        self.transcript.scroll_pages(pages)

    def action_go_to(self, end: str) -> None:
        """To the beginning of the chat, or to its end."""
        self.transcript.go_to(end)

    @on(MessageView.Requested)
    async def do_requested(self, event: MessageView.Requested) -> None:
        """Does what a key on a message asks for."""
        await self.attempt(messages.do_requested, self, event.view, event.what)

    @on(Transcript.PartRequested)
    async def show_part(self, event: Transcript.PartRequested) -> None:
        """Shows more of a long chat."""
        await self.transcript.show_part(event.part)

    @on(Markdown.LinkClicked)
    def copy_link(self, event: Markdown.LinkClicked) -> None:
        """Copies a model's link, which is not opened."""
        messages.copy_text(self, event.href, f"address {event.href}")

    # From the engine

    @on(events.ModelLoading)
    def show_loading(self, event: events.ModelLoading) -> None:
        """Shows how far the model is loaded."""
        following.show_loading(self, event)

    @on(events.ModelReady)
    async def use_model(self) -> None:
        """The model answers from now on."""
        await following.use_model(self)

    @on(events.ModelFailed)
    async def show_failure(self, event: events.ModelFailed) -> None:
        """Says why there is no other model, and what answers now."""
        await following.show_failure(self, event)

    @on(events.PromptRead)
    def show_reading(self, event: events.PromptRead) -> None:
        """Shows how much of the prompt is read, until the first word comes."""
        self.status.show_progress(asking.READING, event.done / max(1, event.total))

    @on(events.ReplyGrew)
    async def show_growth(self) -> None:
        """Shows what has come of the reply."""
        await following.show_growth(self)

    @on(events.ReplyEnded)
    async def settle_reply(self, event: events.ReplyEnded) -> None:
        """Shows the complete reply."""
        await following.settle_reply(self, event)

    @on(Titles.Found)
    async def take_title(self, event: Titles.Found) -> None:
        """Gives a chat the title that the model found, unless it was renamed or deleted meanwhile."""
        await self.attempt(chats.take_title, self, event.chat, event.before, event.title)

    # From downloads and editors

    @on(DownloadProgress)
    def show_download(self, event: DownloadProgress) -> None:
        """Shows how much of all files is here."""
        self.status.show_download(event.what, event.n_bytes / event.total)

    @on(Downloads.Ended)
    async def take_download(self, event: Downloads.Ended) -> None:
        """Uses what is here."""
        self.status.end_download()
        await self.attempt(models.take_download, self, event)

    @on(EditorAccess.Counted)
    def show_requests(self, event: EditorAccess.Counted) -> None:
        """Shows what editors have asked for."""
        self.status.show_requests(event.summary)
