"""The engine's life in the chat: a pair is opened, one reply at a time is made and kept.

Knows the session, and threads that post messages; knows no widget that is seen, and not which chat it answers in.
It is in one of three states: busy with opening a pair or without any, replying, or idle.
"""

from __future__ import annotations

from functools import partial
from threading import Event
from typing import Any

from textual import on
from textual.widget import Widget

from app.tui.background.active_reply import ActiveReply, ReplyRequest
from app.tui.background.events import (
    MemoryChanged,
    ModelFailed,
    ModelReady,
    PromptRead,
    ReplyEnded,
    ReplyFinished,
    ReplyGrew,
    TextGathered,
)
from app.tui.background.pace import Pace
from app.tui.background.reply_worker import make_reply, open_pair
from app.tui.numbers import ChatNumbers, kept, line
from app.tui.pieces import Piece, marks_of, text_of
from app.tui.session import Session
from runtime.engine import Chunk
from runtime.engine.stats import Stats
from runtime.models.registry import Pair

SAVE = 0.5  # seconds between two writes while a reply comes
IDLE = 5.0  # seconds between two looks at the memory while none does
ENDS = {"cancelled": "stopped", "length": "cut off: /continue goes on"}


class EngineHost(Widget):
    """Opens pairs and makes replies in threads.

    Posts ModelLoading, then ModelReady or ModelFailed; PromptRead, ReplyGrew and ReplyEnded; MemoryChanged.
    """

    DEFAULT_CSS = "EngineHost { display: none; }"

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session, self.numbers = session, ChatNumbers()
        self.reply: ActiveReply | None = None
        self.coming: Pair | None = None  # which takes the place of the session's once it is open
        self._pace = Pace()
        self._left = Event()  # nobody wants another engine now
        self._opening: Event | None = None  # set when the latest pair is open or was given up

    def on_mount(self) -> None:
        """What has come is written, and memory looked after, from time to time."""
        self.set_interval(SAVE, self.save)
        self.set_interval(IDLE, self.tend_memory)

    def on_unmount(self) -> None:
        """Threads end within a step; what has come is kept."""
        self.save()
        self.cancel()
        self._left.set()

    @property
    def is_replying(self) -> bool:
        """Is a reply being made?"""
        return self.reply is not None

    @property
    def is_busy(self) -> bool:
        """Is there no engine, or another one to come, or is it replying?"""
        return self.session.engine is None or self.coming is not None or self.is_replying

    def load(self, pair: Pair) -> None:
        """Opens a pair; the one that is open stays until then. Not while replying."""
        before, self.coming = self._opening, pair

        def is_unwanted() -> bool:
            return self._left.is_set() or self.coming is not pair

        def work() -> None:
            if before is not None:
                before.wait()  # it gives up at the next look at whether it is wanted
            try:
                if not is_unwanted():
                    open_pair(self.session, pair, is_unwanted, self.post_message)
            finally:
                done.set()

        done = self._opening = Event()
        self.run_worker(work, thread=True, group="engine")

    @on(ModelReady)
    def _take_engine(self, event: ModelReady) -> None:
        if self._left.is_set() or event.pair is not self.coming:
            event.stop()
            self.run_worker(event.engine.close, thread=True, group="engine")
            return
        old, self.session.engine, self.coming = self.session.engine, event.engine, None
        if old is not None:
            self.run_worker(old.close, thread=True, group="engine")
        self.session.choose(event.pair)
        self.numbers.reply, self.numbers.explanation = Stats(), event.engine.explain()
        facts = f"{event.seconds:.1f} s, {event.engine.facts.n_ctx} tokens of context"
        self.session.note(f"loaded {self.session.pair.name} in {facts}")
        if event.engine.facts.fit:
            self.session.note(event.engine.facts.fit)

    @on(ModelFailed)
    def _note_failure(self, event: ModelFailed) -> None:
        if event.pair is not self.coming:
            event.stop()
            return
        self.coming = None
        self.session.note(event.reason)

    def tend_memory(self) -> None:
        """Between replies: an idle chat gives up what memory asks for, too."""
        engine = self.session.engine
        if engine is None or self.is_replying:
            return
        before = engine.given_up
        engine.tend()
        if engine.given_up != before:
            self.session.note(engine.given_up or "what was given up for want of memory is back")
            self.post_message(MemoryChanged())

    def start(self, request: ReplyRequest) -> None:
        """Makes a reply. Only while idle."""
        assert self.session.engine is not None
        assert self.reply is None
        self.reply = ActiveReply(self.session.engine, request)
        self.numbers.reply, self._pace = Stats(), Pace()
        work = partial(make_reply, self.reply, self.post_message)
        # Drawing the question would slow down the first passes
        self.call_after_refresh(self.run_worker, work, thread=True, group="engine")

    def cancel(self) -> None:
        """Ends the reply at the next token; ReplyEnded follows."""
        if self.reply is not None:
            self.reply.cancel()

    @on(PromptRead)
    def _count_prompt(self, event: PromptRead) -> None:
        self.numbers.reply.prompt_n = event.total + 1

    @on(TextGathered)
    def _plan_to_show(self, event: TextGathered) -> None:
        event.stop()
        self.set_timer(self._pace.pause(), partial(self.post_message, ReplyGrew()))

    def collect(self) -> list[Piece]:
        """What has come of the reply since it was asked last, counted."""
        if self.reply is None:
            return []
        batch = self.reply.collect()
        self.numbers.add(batch.passes, batch.explanation)
        return batch.pieces

    @on(ReplyFinished)
    def _end_reply(self, event: ReplyFinished) -> None:
        event.stop()
        self.collect()
        reply, self.reply = event.reply, None
        self.numbers.explanation = reply.engine.explain()
        if event.last is not None and event.last.stats is not None:
            self.numbers.reply = event.last.stats
        told = line(self.numbers.reply)
        numbers = {"line": told, "numbers": kept(self.numbers.reply)}
        facts = {**numbers, "marks": marks_of(reply.pieces), **end_of(event.last)}
        self._write(reply, facts)
        remark = event.error or (event.last.notice if event.last is not None else "")
        self.session.note(remark or f"reply: {told}")
        self.post_message(ReplyEnded(reply.message_id, reply.pieces, facts, remark))

    def save(self) -> None:
        """Writes what has come of the reply."""
        if self.reply is not None and not self.reply.is_saved:
            self._write(self.reply, {"marks": marks_of(self.reply.pieces)})

    def _write(self, reply: ActiveReply, facts: dict[str, Any]) -> None:
        self.session.store.update_message(reply.message_id, text_of(reply.pieces), facts)
        reply.is_saved = True


def end_of(last: Chunk | None) -> dict[str, str]:
    """What is said of a reply that did not end by itself."""
    reason = last.finish_reason if last is not None else None
    return {"end": ENDS[reason]} if reason in ENDS else {}
