"""The chat as one talks: a question is sent, said differently, answered again, stopped, copied.

What else commands do is chat.py's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from inspect import isawaitable
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Markdown

from app.tui.attach import attach
from app.tui.clipboard import copy_to_desktop
from app.tui.commands import bindings, parse
from app.tui.prompt import PromptBox
from app.tui.pulling import Pulling
from app.tui.turn import Turn
from runtime.core.errors import SlipstreamError


class Wanted(Message):
    """A command was chosen by key or in the palette."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


class Talking(Pulling):
    """Every command of commands.py is a method `do_<name>` of the chat screen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings(),
        Binding("escape", "stop", "Stop", id="chat.stop", priority=True, show=False),
        Binding("pageup", "scroll_chat(-1)", "Scroll up", id="chat.up", priority=True, show=False),
        Binding("pagedown", "scroll_chat(1)", "Scroll down", id="chat.down", priority=True, show=False),
    ]
    editing: int | None = None  # the question that the next one takes the place of

    @on(PromptBox.Sent)
    async def take(self, event: PromptBox.Sent) -> None:
        """A command, or a question."""
        await self.attempt(self.obey_or_ask, event.text)

    async def obey_or_ask(self, text: str) -> None:
        """A space before a slash makes it something to say."""
        command = parse(text) if not text.startswith(" ") else None
        if command is not None:
            self.prompt.begin()
            await self.attempt(getattr(self, f"do_{command[0].name}"), command[1])
        else:
            await self.ask(attach(text.strip()))

    async def attempt(self, what: Callable[..., object], *arguments: object) -> None:
        """Does it; what is wrong with it is said."""
        try:
            done = what(*arguments)
            if isawaitable(done):
                await done
        except SlipstreamError as error:
            self.notify(str(error), severity="error", markup=False)

    def action_do(self, name: str) -> None:
        """A key or the palette: whatever changes the chat is done one after the other, in this screen's turn."""
        self.post_message(Wanted(name))

    @on(Wanted)
    async def do(self, event: Wanted) -> None:
        """A command without an argument."""
        await self.attempt(getattr(self, f"do_{event.name}"))

    async def ask(self, text: str) -> None:
        """Says something, and has it answered."""
        if self.replying is not None or self.waiting is not None:
            self.notify("A reply is still to come. Esc stops it.")
            return
        if self.editing is None:
            self.conversation.ask(text)
        else:
            self.conversation.ask_instead(self.editing, text)
        self.prompt.remember(self.prompt.text)
        self.prompt.begin()
        self.end_editing()
        await self.answer()

    def end_editing(self) -> None:
        """The next question is a new one."""
        self.editing = None
        self.remove_class("-editing")
        self.prompt.border_title = ""

    def action_stop(self) -> None:
        """Stops the reply; or leaves what one is in, for the prompt; or pauses what is being fetched."""
        if self.replying is not None or self.waiting is not None:
            self.cancelled.set()
            self.waiting = None
        elif self.editing is not None:
            self.end_editing()
            self.prompt.begin()
        elif self.unwanted is not None:
            self.unwanted.set()
        self.prompt.focus()

    def action_scroll_chat(self, pages: int) -> None:
        """Without leaving the prompt."""
        self.transcript.scroll_page_down() if pages > 0 else self.transcript.scroll_page_up()

    @on(Turn.Wish)
    async def take_wish(self, event: Turn.Wish) -> None:
        """A key on a message."""
        await self.attempt(self.grant, event.turn, event.what)

    async def grant(self, turn: Turn, what: str) -> None:
        """What it asked for."""
        match what:
            case "copy":
                self.copy(turn.text, "message")
            case "copy_code":
                self.copy(turn.code(), "code block")
            case "regenerate":
                await self.regenerate(turn.message)
            case "edit" if turn.role == "user":
                self.edit(turn)
            case "older" | "newer" if not self.is_busy and self.conversation.turn_to(
                turn.message, -1 if what == "older" else 1
            ):
                await self.show_chat()

    @on(Markdown.LinkClicked)
    def show_link(self, event: Markdown.LinkClicked) -> None:
        """A model's links are not opened, but can be."""
        self.copy(event.href, f"address {event.href}")

    def copy(self, text: str, what: str) -> None:
        """To the clipboard: through the terminal, which may be elsewhere, and to this machine's desktop."""
        if text:
            self.app.copy_to_clipboard(text)
            self.run_worker(partial(copy_to_desktop, text), thread=True)  # its programs may take their time
        self.notify(f"Copied the {what}." if text else f"There is no {what}.", markup=False)

    def turns(self, role: str) -> Sequence[Turn]:
        """The messages of one side that are on screen."""
        return [turn for turn in self.query(Turn) if turn.role == role]

    async def regenerate(self, message: int) -> None:
        """Another reply to that question, or in that reply's place."""
        if self.is_busy:
            self.notify("A reply or a model is still to come. Esc stops a reply.")
        elif self.conversation.again(message):
            if self.session.sampling.temperature == 0:
                self.notify("At temperature 0 the reply is the same again. /set temperature 0.8 makes others possible.")
            await self.answer()

    def edit(self, turn: Turn) -> None:
        """Puts a question into the prompt, to be said differently."""
        self.editing = turn.message
        self.add_class("-editing")
        self.prompt.border_title = "Editing: Enter branches the chat here, Esc leaves it as it was"
        self.prompt.begin(turn.text)
        self.prompt.focus()
