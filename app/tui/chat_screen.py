"""The chat screen: composes the widgets and routes messages among them, the engine and the person.

Knows every part of the screen; `actions` has the commands and `widgets` the appearance. All changes of the chat run one
after the other in this screen's message loop.
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
from textual.events import Key, Paste
from textual.screen import Screen
from textual.widgets import Footer, Markdown, Static

from app.tui.actions import asking, chats, following, messages, models, offering, views, writing
from app.tui.actions.arguments import arguments_in
from app.tui.actions.dispatch import HANDLERS
from app.tui.background import events
from app.tui.background.downloads import DownloadProgress, Downloads
from app.tui.background.editor_access import EditorAccess
from app.tui.background.engine_host import EngineHost
from app.tui.background.titles import Titles
from app.tui.command_search import parse
from app.tui.commands import bindings
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


class ChatScreen(Screen[None]):
    """One chat on screen, and the engine that answers in it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings(),
        Binding("escape", "stop", "Stop", id="chat.stop", priority=True, show=False),
        Binding(offering.KEY, "take_offered", "What is offered", id=offering.ID, priority=True, show=False),
        Binding("ctrl+d", "command('quit')", "Quit", show=False),
        # Terminals that cannot tell Ctrl+M from Enter send Enter, so the documented key is Ctrl+L
        Binding("ctrl+m", "command('model')", "Model", show=False, priority=True),
        Binding("ctrl+home", "go_to('first')", "To the first message", id="chat.first", priority=True, show=False),
        Binding("ctrl+end", "go_to('last')", "To the last message", id="chat.last", priority=True, show=False),
        Binding("home", "go_to('first')", "To the first message", show=False),
        Binding("end", "go_to('last')", "To the last message", show=False),
        Binding("pageup", "scroll_chat(-1)", "Scroll up", id="chat.up", priority=True, show=False),
        Binding("pagedown", "scroll_chat(1)", "Scroll down", id="chat.down", priority=True, show=False),
    ]

    def __init__(self, session: Session, chat: int | None = None) -> None:
        super().__init__()
        self.session = session
        self.branch = session.branch(chat)
        self.waiting: Callable[[ChatScreen], object] | None = None  # the action to run once the engine is free
        self.numbers_shown = 0.0  # time of the last update of the numbers (time.monotonic)
        self.offered: offering.Offered | None = None  # in the line above the prompt
        self.downloads, self.editors = Downloads(), EditorAccess(session)
        self.transcript, self.panel, self.status = Transcript(self.branch, id="transcript"), SidePanel(), StatusLine()
        known = partial(complete, arguments=arguments_in(session, lambda: self.branch.settings))
        self.composer = Composer(session.store.prompts(), known)
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
        yield from asking.followers(self)

    async def on_mount(self) -> None:
        """Start loading the model and show an empty chat meanwhile."""
        self.screen_layout_refresh_signal.subscribe(self, lambda _: views.place_messages(self))
        self.prompt.focus()
        models.load(self, self.session.pair)
        await self.show_chat()
        offering.look_at_author(self)
        if remark := self.session.store.remark:
            self.notify(remark, severity="warning")

    async def show_chat(self, at: int | None = None) -> None:
        """Show the end of the branch, or focus one of its messages."""
        await self.transcript.show(self.branch, at)
        self.show_title()
        offering.look(self)

    def show_title(self) -> None:
        """Show the names of the answering pair and of the chat, and the settings that differ from the defaults."""
        title, is_there = clean(self.branch.title) or "new chat", self.session.engine or self.host.coming
        name = self.session.pair.name if is_there else "no model"
        told = self.session.settings.told(self.session.pair, self.branch.settings, self.branch.system)
        self.query_one("#top", Static).update(Content(" · ".join(["Slipstream", name, *told, title])))

    @on(events.MemoryChanged)
    def show_numbers(self) -> None:
        """Show the numbers of the last reply on screen, and warnings."""
        views.show_numbers(self)

    async def attempt(self, action: Callable[..., object], *arguments: object) -> None:
        """Run an action and show its error if it fails."""
        try:
            done = action(*arguments)
            if isawaitable(done):
                await done
        except SlipstreamError as error:
            self.notify(str(error), severity="error")

    # From the person

    @on(PromptBox.Sent)
    async def take_text(self, event: PromptBox.Sent) -> None:
        """Run a command or send a question; a space before a slash makes the text a question."""
        await self.attempt(self._do_or_ask, event)

    async def _do_or_ask(self, event: PromptBox.Sent) -> None:
        command = parse(event.text) if not event.text.startswith(" ") else None
        if command is None:
            await asking.ask(self, event.text.strip(), event.typed, event.replaces)
        else:
            self.prompt.remember()
            self.prompt.begin()
            await self.attempt(HANDLERS[command[0].name], self, command[1])

    @on(OfferList.Taken)
    async def take_offer(self, event: OfferList.Taken) -> None:
        """Run the command, or ask the question, of a line picked in an empty chat."""
        self.prompt.focus()
        await self.attempt(self._do_or_ask, PromptBox.Sent(event.text, event.text))

    @on(Key)
    @on(Paste)
    def write(self, event: Key | Paste) -> None:
        """Put into the prompt what nothing else takes."""
        writing.take(self, event)

    def action_command(self, name: str) -> None:
        """Run a command without an argument, which was chosen by key or in the palette, after what is under way."""
        self.call_later(self.attempt, HANDLERS[name], self, "")

    async def action_take_offered(self) -> None:
        """Run the command that the line above the prompt offers."""
        if self.offered is None or not self.offered.command:
            self.notify("Nothing is offered now.")
        else:
            await self.attempt(HANDLERS[self.offered.command], self, self.offered.argument)
            offering.look_again(self)

    def action_stop(self) -> None:
        """End the first of these that is active: suggestions, waiting messages, the reply, a model load, the rewriting
        of a message, a download.
        """
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
        """Scroll the chat while the focus stays in the prompt."""
        self.transcript.scroll_pages(pages)

    def action_go_to(self, end: str) -> None:
        """Scroll to the beginning or the end of the chat."""
        self.transcript.go_to(end)

    @on(MessageView.Requested)
    async def do_requested(self, event: MessageView.Requested) -> None:
        """Run the action of a key that was pressed on a message."""
        await self.attempt(messages.do_requested, self, event.view, event.what)

    @on(Transcript.PartRequested)
    async def show_part(self, event: Transcript.PartRequested) -> None:
        """Show more of a long chat."""
        await self.transcript.show_part(event.part)

    @on(Markdown.LinkClicked)
    def copy_link(self, event: Markdown.LinkClicked) -> None:
        """Copy a link from a reply, and do not open it."""
        messages.copy_link(self, event.href)

    # From the engine

    @on(events.ModelLoading)
    def show_loading(self, event: events.ModelLoading) -> None:
        """Show the progress of loading the model."""
        following.show_loading(self, event)

    @on(events.ModelReady)
    async def use_model(self) -> None:
        """Answer with the new model from now on."""
        await following.use_model(self)

    @on(events.ModelFailed)
    async def show_failure(self, event: events.ModelFailed) -> None:
        """Show why no other model was opened, and which one answers now."""
        await following.show_failure(self, event)

    @on(events.PromptRead)
    def show_reading(self, event: events.PromptRead) -> None:
        """Show how much of the prompt is read, until the first word of the reply."""
        self.status.show_reading(event.done, event.total)

    @on(events.ReplyGrew)
    async def show_growth(self) -> None:
        """Show the new text of the reply."""
        await following.show_growth(self)

    @on(events.ReplyEnded)
    async def settle_reply(self, event: events.ReplyEnded) -> None:
        """Show the complete reply."""
        await following.settle_reply(self, event)

    @on(Titles.Found)
    async def take_title(self, event: Titles.Found) -> None:
        """Give a chat the title that the model generated, unless it was renamed or deleted meanwhile."""
        await self.attempt(chats.take_title, self, event.chat, event.before, event.title)

    # From downloads and editors

    @on(DownloadProgress)
    def show_download(self, event: DownloadProgress) -> None:
        """Show the downloaded share of all files."""
        self.status.show_download(event.what, event.n_bytes / event.total)

    @on(Downloads.Ended)
    async def take_download(self, event: Downloads.Ended) -> None:
        """Use the downloaded model."""
        self.status.end_download()
        await self.attempt(models.take_download, self, event)

    @on(EditorAccess.Counted)
    def show_requests(self, event: EditorAccess.Counted) -> None:
        """Show the number of requests from editors."""
        self.status.show_requests(event.summary)
