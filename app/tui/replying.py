"""The chat as it is seen and as replies come in: transcript, status, prompt. What commands do is chat.py's."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from threading import Event
from typing import Any

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Button, Footer, Static

from app.store import Said
from app.tui.answering import Arrived, Asked, Finished, Gathering, Loaded, LoadFailed, Loading, Reading, answer, clean, load
from app.tui.commands import NAMES
from app.tui.conversation import Conversation
from app.tui.numbers import Tally
from app.tui.pace import Pace
from app.tui.panel import SidePanel
from app.tui.prompt import PromptBox
from app.tui.session import Session
from app.tui.status import StatusLine
from app.tui.turn import Turn
from runtime.errors import SlipstreamError
from runtime.explain import Pass
from runtime.registry import Pair

NUMBERS = 0.25  # seconds between two looks at the numbers while a reply comes
SAVE = 0.5  # seconds between two writes while a reply comes
IDLE = 5.0  # seconds between two looks at the memory while none does
WIDE = 120  # columns from which on the graphs are there at once
SHOWN = 40  # messages of a long chat that are there at once
WELCOME = "Ask something. Enter sends, Ctrl+J begins a line, F1 shows every key, / names a command, @ attaches a file."
ENDS = {"cancelled": "stopped", "length": "cut off: /continue goes on"}


class Replying(Screen[None]):
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

    async def on_mount(self) -> None:
        """The model loads behind an empty chat."""
        self.prompt.focus()
        self.set_class(self.app.size.width >= WIDE, "-panel")
        self.set_interval(SAVE, self.save)
        self.set_interval(IDLE, self.tend_memory)
        self.set_interval(SAVE, self.show_requests)
        await self.show_chat()
        self.start_loading(self.session.pair)

    def on_unmount(self) -> None:
        """Workers end within a step."""
        self.save()
        self.cancelled.set()
        self.closing.set()

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

    def start_loading(self, pair: Pair) -> None:
        """Opens a pair in a thread; the one that is open is closed first."""
        old, self.session.engine = self.session.engine, None
        self.session.choose(pair)
        self.show_title()
        self.status.say("")
        self.status.show_progress(f"Loading {pair.name}", 0.0)

        def work() -> None:
            self.session.stop_serving()
            if old is not None:
                old.close()
            load(self.session.open_engine, pair, self.session.options, self.closing.is_set, self.post_message)

        self.run_worker(work, thread=True, group="engine")

    @on(Loading)
    def show_loading(self, event: Loading) -> None:
        """How much of the file is read; what comes after that is measuring."""
        what = f"Loading the {event.what} model of" if event.share < 1 else "Measuring"
        self.status.show_progress(f"{what} {self.session.pair.name}", event.share)

    @on(Loaded)
    def take_engine(self, event: Loaded) -> None:
        """Ready; a question may be waiting."""
        if self.closing.is_set():
            event.engine.close()
            return
        self.session.engine, self.session.explanation = event.engine, event.engine.explain()
        self.session.note(f"loaded {self.session.pair.name} in {event.seconds:.1f} s, {event.engine.n_ctx} tokens of context")
        if event.engine.fit:
            self.session.note(event.engine.fit)
        self.status.end_progress()
        self.show_numbers()
        self.start_serving()
        self.go_on()

    def start_serving(self) -> None:
        """Answers editors, if that is wanted."""
        try:
            self.session.start_serving()
        except SlipstreamError as error:
            self.notify(str(error), severity="error", markup=False)
        if self.session.serving is not None:
            self.session.note(f"answering at {self.session.serving.places}")
            self.notify(f"Editors are answered at {self.session.serving.places}", markup=False)
        self.show_requests()

    def show_requests(self) -> None:
        """What editors have asked for."""
        self.status.show_requests(self.session.serving.words() if self.session.serving is not None else "")

    @on(LoadFailed)
    def show_failure(self, event: LoadFailed) -> None:
        """Says why, and how to go on."""
        self.session.note(event.reason)
        self.waiting = None
        self.status.end_progress()
        self.status.say(f"{event.reason} Ctrl+L chooses another model.")

    def go_on(self) -> None:
        """Does what had to wait."""
        waiting, self.waiting = self.waiting, None
        if waiting is not None:
            self.call_later(waiting)

    async def show_chat(self, most: int = SHOWN) -> None:
        """The whole branch anew, or its last messages."""
        said = self.conversation.said()
        shown = said[-most:]
        hidden = len(said) - len(shown)
        earlier = [Button(f"Show {hidden} earlier messages", id="earlier", compact=True)] if hidden else []
        turns: list[Widget] = [self.turn_of(each) for each in shown]
        with self.app.batch_update():
            await self.transcript.remove_children()
            await self.transcript.mount_all([*earlier, *turns] or [Static(Content(WELCOME), id="welcome")])
        self.transcript.anchor()
        self.show_title()

    @on(Button.Pressed, "#earlier")
    async def show_everything(self) -> None:
        """All messages of a long chat, once no reply is on its way into them."""
        if self.is_busy:
            self.waiting = self.waiting or self.show_everything
        else:
            await self.show_chat(most=1 << 30)

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

    def tend_memory(self) -> None:
        """Between replies: an idle chat gives up what memory asks for, too."""
        engine = self.session.engine
        if engine is None or self.replying is not None:
            return
        before = engine.given_up
        engine.tend()
        if engine.given_up != before:
            self.session.note(engine.given_up or "what was given up for want of memory is back")
            self.show_numbers()

    async def answer(self) -> None:
        """A new reply to what was said last, as soon as a model is there."""
        await self.show_chat()
        if self.is_busy:
            self.waiting = self.answer
            return
        self.conversation.begin_reply()
        turn = self.turn_of(self.conversation.said()[-1])
        await self.transcript.mount(turn)
        self.start_reply(turn)

    def start_reply(self, turn: Turn) -> None:
        """Makes the rest of that reply in a thread."""
        engine = self.session.engine
        assert engine is not None
        self.replying, self.cancelled, self.tally, self.pace = turn, Event(), Tally(), Pace()
        self.transcript.anchor()
        asked = Asked(turn.message, self.conversation.turns(), self.session.sampling, self.session.max_tokens)
        work = partial(answer, engine, asked, self.cancelled.is_set, self.post_message)
        self.call_after_refresh(self.run_worker, work, thread=True, group="engine")  # drawing the question would slow down the first passes

    @on(Reading)
    def show_reading(self, event: Reading) -> None:
        """How much of the prompt is read, where that takes long enough to be seen."""
        self.tally.n_prompt = event.total + 1
        if event.done < event.total:
            self.status.show_progress("Reading the prompt", event.done / event.total)
        else:
            self.status.end_progress()

    @on(Arrived)
    def plan_to_show(self, event: Arrived) -> None:
        """What comes within the pause is shown with it."""
        self.set_timer(self.pace.pause(), partial(self.show_more, event.gathering))

    async def show_more(self, gathering: Gathering) -> None:
        """What came of the reply until now."""
        turn, batch = self.replying, gathering.take()
        if turn is None or turn.message != gathering.message or not (batch.passes or batch.pieces):
            return
        self.session.explanation = batch.explanation or self.session.explanation
        self.tally.add(batch.n_tokens, batch.passes)
        self.passes += batch.passes
        self._unsaved = True
        await turn.append(batch.pieces)
        if time.monotonic() - self._counted >= NUMBERS:
            self._counted = time.monotonic()
            self.show_numbers()

    @on(Finished)
    async def close_reply(self, event: Finished) -> None:
        """The reply is complete, was stopped, or failed."""
        await self.show_more(event.gathering)
        turn, engine = self.replying, self.session.engine
        if turn is None or turn.message != event.gathering.message or engine is None:
            return
        self.session.explanation = engine.explain()
        self.tally.stats = event.last.stats if event.last is not None else None
        self.status.end_progress()
        facts: dict[str, Any] = {"line": self.tally.line(), "marks": turn.marks()}
        if event.last is not None and event.last.finish_reason in ENDS:
            facts["end"] = ENDS[event.last.finish_reason]
        self.save(facts, turn)
        if turn.is_attached:
            await turn.settle(facts)
        self.replying = None
        self.show_numbers()
        said = event.error or (event.last.notice if event.last is not None else "")
        self.session.note(said or f"reply: {self.tally.line()}")
        if said:
            self.status.say(said)
        self.go_on()

    def save(self, facts: dict[str, Any] | None = None, turn: Turn | None = None) -> None:
        """Writes what has come of the reply."""
        turn = turn or (self.replying if self._unsaved else None)
        if turn is not None:
            self.session.store.write(turn.message, turn.text, facts or {"marks": turn.marks()})
            self._unsaved = False
