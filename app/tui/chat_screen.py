"""The chat screen: routes messages and keys to the actions.

All changes of the chat run one after the other in this screen's message loop.
"""

from __future__ import annotations

import time
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.events import Key, Paste
from textual.widgets import Markdown

from app.chats.branch import NO_ROOM
from app.models.prospects import reading_seconds
from app.tui.actions import HANDLERS, asking, chats, choosing, messages, models, offering, views
from app.tui.between_replies import Titles
from app.tui.chat import OpenChat
from app.tui.commands import bindings
from app.tui.completion import parse
from app.tui.downloads import DownloadProgress, Downloads
from app.tui.editor_access import EditorAccess
from app.tui.engine_host import MemoryChanged, ReplyEnded, ReplyGrew
from app.tui.replies import PromptRead
from app.tui.session import ModelFailed, ModelLoading, ModelReady
from app.tui.terminal import copy_text
from app.tui.widgets.message_view import MessageView
from app.tui.widgets.prompt import PromptBox
from app.tui.widgets.transcript import OfferList, Transcript

NUMBERS = 0.25  # seconds between two updates of the numbers during a reply


class ChatScreen(OpenChat):
    """The chat, with what happens on a key, a message of the engine, or one of another part."""

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

    async def on_mount(self) -> None:
        """Start loading the model and show an empty chat meanwhile."""
        self.screen_layout_refresh_signal.subscribe(self, lambda _: views.place_messages(self))
        self.prompt.focus()
        models.load(self, self.session.pair)
        await offering.show_chat(self)
        offering.look_at_author(self)
        if remark := self.session.store.remark:
            self.notify(remark, severity="warning")

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
        asking.take(self, event)

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
        copy_text(self, event.href, f"address {event.href}")

    # From the engine

    @on(MemoryChanged)
    def show_numbers(self) -> None:
        """Show the numbers of the last reply on screen, and warnings."""
        views.show_numbers(self)

    @on(ModelLoading)
    def show_loading(self, event: ModelLoading) -> None:
        """Show the progress of loading the model."""
        models.show_loading(self, event)

    @on(ModelReady)
    async def use_model(self) -> None:
        """Show the new model as ready, and start the waiting question and the server for editors."""
        self.status.end_progress()
        self.status.reading.expect(reading_seconds(self.session.pair.target))
        self.show_title()
        offering.look_again(self)
        views.show_ready(self)
        models.answer_editors(self)
        views.say_what_lacks(self)
        await asking.go_on(self)
        self.run_worker(offering.offer(self), group="first steps", exclusive=True)

    @on(ModelFailed)
    async def show_failure(self, event: ModelFailed) -> None:
        """Show the reason, and the model that answers now: the one that was open before, or none."""
        self.status.end_progress()
        self.show_title()
        if self.session.engine is None:
            choosing.show_none(self, event.reason)
            return
        views.show_numbers(self)
        self.notify(f"{event.reason} {self.session.pair.name} still answers.", severity="error")
        models.serve_again(self)
        await asking.go_on(self)

    @on(PromptRead)
    def show_reading(self, event: PromptRead) -> None:
        """Show how much of the prompt is read, until the first word of the reply."""
        self.status.show_reading(event.done, event.total)

    @on(ReplyGrew)
    async def show_growth(self) -> None:
        """Show the new text of the reply, and its numbers from time to time."""
        if (reply := self.host.reply) is None:
            return
        self.status.end_progress()
        await self.transcript.append(reply.message_id, self.host.collect())
        if time.monotonic() - self.numbers_shown >= NUMBERS:
            self.numbers_shown = time.monotonic()
            views.show_numbers(self)

    @on(ReplyEnded)
    async def settle_reply(self, event: ReplyEnded) -> None:
        """Show the complete reply with its numbers, then start the waiting action. After a failure or with a full
        context, waiting messages return to the prompt.
        """
        self.status.end_progress()
        await self.transcript.settle(event.message_id, event.pieces, event.facts)
        offering.look(self)
        if event.remark and self.offered is None:
            self.status.show_sentence(event.remark)
            if not event.pieces:
                self.status.show_numbers([])  # a model that failed to answer is not shown as ready
        if event.has_failed or NO_ROOM in event.facts:
            self.composer.take_back()
        await asking.go_on(self)
        if not self.host.is_busy:
            self.host.titles.plan(self.branch)

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
