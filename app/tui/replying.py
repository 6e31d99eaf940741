"""A pair is opened and replies come in: what workers post is put on screen and kept. What commands do is chat.py's."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from threading import Event
from typing import Any

from textual import on

from app.tui.answering import Arrived, Asked, Finished, Gathering, Loaded, LoadFailed, Loading, Reading, answer, load
from app.tui.numbers import Tally
from app.tui.pace import Pace
from app.tui.turn import Turn
from app.tui.view import ChatView
from runtime.core.errors import SlipstreamError
from runtime.models.registry import Pair

NUMBERS = 0.25  # seconds between two looks at the numbers while a reply comes
SAVE = 0.5  # seconds between two writes while a reply comes
IDLE = 5.0  # seconds between two looks at the memory while none does
WIDE = 120  # columns from which on the graphs are there at once
ENDS = {"cancelled": "stopped", "length": "cut off: /continue goes on"}


class Replying(ChatView):
    """Loads one pair, makes one reply at a time."""

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
        self.session.note(
            f"loaded {self.session.pair.name} in {event.seconds:.1f} s, {event.engine.n_ctx} tokens of context"
        )
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

    async def stop_serving(self) -> None:
        """Says so when the socket is gone."""
        await asyncio.to_thread(self.session.stop_serving)
        self.notify("Editors are answered no more.")

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
        # Drawing the question would slow down the first passes
        self.call_after_refresh(self.run_worker, work, thread=True, group="engine")

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
