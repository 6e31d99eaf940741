"""What is seen of the chat and what it stands at: transcript, status, prompt.

Makes nothing happen: replying.py does.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Button, Footer, Static

from app.chats.store import Said
from app.tui.answering import clean
from app.tui.commands import NAMES
from app.tui.conversation import Conversation
from app.tui.numbers import Tally
from app.tui.pace import Pace
from app.tui.panel import SidePanel
from app.tui.prompt import PromptBox
from app.tui.session import Session
from app.tui.status import StatusLine
from app.tui.turn import Turn
from runtime.speculative.control.explain import Pass

SHOWN = 40  # messages of a long chat that are put on screen at once
WELCOME = (
    "Ask something. Enter sends, Ctrl+J begins a line, F1 shows every key.\nA / begins a command, an @ attaches a file."
)


class ChatView(Screen[None]):
    """Owns the widgets and the state of the chat; one reply at a time."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session = session
        self.conversation = Conversation(session.store)
        self.tally, self.passes = Tally(), list[Pass]()  # of the reply, of the chat
        self.replying: Turn | None = None
        self.cancelled, self.closing = Event(), Event()
        self.pace, self._counted = Pace(), 0.0  # of the reply; when its numbers were shown
        self.waiting: Callable[[], object] | None = None  # what is to be done once nothing loads or replies
        self._unsaved = False

    def compose(self) -> ComposeResult:
        """From top to bottom."""
        yield Static(id="top")
        with Horizontal(id="middle"):
            transcript = VerticalScroll(id="transcript")
            transcript.can_focus = False
            yield transcript
            yield SidePanel()
        yield StatusLine()
        yield PromptBox(self.session.store.prompts(), NAMES, id="prompt")
        yield Footer()

    @property
    def prompt(self) -> PromptBox:
        """The box to write in."""
        return self.query_one("#prompt", PromptBox)

    @property
    def status(self) -> StatusLine:
        """The line above it."""
        return self.query_one(StatusLine)

    @property
    def transcript(self) -> VerticalScroll:
        """What was said."""
        return self.query_one("#transcript", VerticalScroll)

    @property
    def is_busy(self) -> bool:
        """Is a pair loading, or a reply made?"""
        return self.session.engine is None or self.replying is not None

    def go_on(self) -> None:
        """Does what had to wait."""
        waiting, self.waiting = self.waiting, None
        if waiting is not None:
            self.call_later(waiting)

    async def show_chat(self) -> None:
        """The last messages of the branch anew."""
        said = self.conversation.said()
        turns: list[Widget] = [self.turn_of(each) for each in said[-SHOWN:]]
        with self.app.batch_update():
            await self.transcript.remove_children()
            await self.transcript.mount_all(
                [*earlier(len(said) - len(turns)), *turns] or [Static(Content(WELCOME), id="welcome")]
            )
        self.transcript.anchor()
        self.show_title()

    @on(Button.Pressed, "#earlier")
    async def show_earlier(self) -> None:
        """As many messages more, above those that are there, once no reply is on its way into them."""
        if self.is_busy:
            self.waiting = self.waiting or self.show_earlier
            return
        first, said = self.query(Turn).first(), self.conversation.said()
        at = next(i for i, each in enumerate(said) if each.id == first.message)
        above = said[max(0, at - SHOWN) : at]
        self.transcript.release_anchor()
        await self.query("#earlier").remove()
        await self.transcript.mount_all([*earlier(at - len(above)), *map(self.turn_of, above)], before=first)
        self.call_after_refresh(self.transcript.scroll_to_widget, first, animate=False, top=True)

    def turn_of(self, said: Said) -> Turn:
        """A message as a widget."""
        return Turn(said, self.conversation.version(said.id))

    def show_title(self) -> None:
        """The pair and the chat."""
        title = clean(self.conversation.title) or "new chat"
        self.query_one("#top", Static).update(Content(f"Slipstream · {self.session.pair.name} · {title}"))

    def show_numbers(self) -> None:
        """Of the reply, live; and what must not be overlooked."""
        engine, explanation = self.session.engine, self.session.explanation
        words = self.tally.words(explanation, engine.n_ctx, engine.memory_level) if engine is not None else []
        self.status.show_numbers(words or [f"{self.session.pair.name} is ready" if engine is not None else ""])
        self.status.say(self.session.store.problem or self.tally.sentence(explanation, engine))
        self.query_one(SidePanel).show(self.passes, explanation)


def earlier(hidden: int) -> list[Widget]:
    """A button for messages that are not there yet."""
    return (
        [Button(f"Show {min(hidden, SHOWN)} of {hidden} earlier messages", id="earlier", compact=True)]
        if hidden
        else []
    )
