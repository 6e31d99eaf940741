"""Owner of the chat's engine: opens pairs, and generates and stores one reply at a time.

Knows the session, and threads that post messages; knows no visible widget, and not the chat of a reply. It is in one of
three states: busy with opening a pair or without any, replying, or idle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import Any

from textual import on
from textual.app import ComposeResult
from textual.message import Message

from app.chats.branch import INTERRUPTED
from app.reply_text import Piece, marks_of, text_of
from app.tui.between_replies import Titles
from app.tui.numbers import ChatNumbers, facts_of, line
from app.tui.pace import Invisible, Latest, Pace, TypingGap
from app.tui.private_textual import run_reported
from app.tui.replies import (
    STOPPED,
    ActiveReply,
    PromptRead,
    ReplyFinished,
    ReplyRequest,
    TextGathered,
    end_of,
    failure_of,
    make_reply,
)
from app.tui.session import ModelFailed, ModelReady, Session, open_pair
from runtime.engine.stats import Stats
from runtime.models.registry import Pair

NOTHING_ADDED = "The reply had come to its end, so nothing was added."
SAVE = 0.5  # seconds between two writes during a reply
LOOK = 5.0  # seconds between two looks at what the engine disabled for lack of memory


class MemoryChanged(Message):
    """The engine dropped something for lack of memory, or restored it."""


class ReplyGrew(Latest):
    """It is time to show the new text of the reply, which EngineHost.collect returns."""


@dataclass
class ReplyEnded(Message):
    """The reply is complete, was stopped or has failed, and is stored; a remark is for people."""

    message_id: int
    pieces: Sequence[Piece]
    facts: dict[str, Any]
    remark: str
    has_failed: bool


class EngineHost(Invisible):
    """Opens pairs and generates replies in threads.

    Posts ModelLoading, then ModelReady or ModelFailed; PromptRead, ReplyGrew and ReplyEnded; MemoryChanged.
    """

    def __init__(self, session: Session, gap: TypingGap) -> None:
        super().__init__()
        self.session, self.numbers, self.titles = session, ChatNumbers(), Titles(session)
        self._gap, self.answered = gap, 0  # in which new text is shown; the message of the last reply
        self.reply: ActiveReply | None = None
        self.coming: Pair | None = None  # replaces the session's pair once it is open
        self._pace, self._given_up = Pace(), ""  # what the engine had disabled at the last look
        self._left = Event()  # set when the chat is left, so that no engine is opened any more
        self._opening: Event | None = None  # set when the latest pair is open or cancelled

    def compose(self) -> ComposeResult:
        """Yield the widget that uses the engine between replies."""
        yield self.titles

    def on_mount(self) -> None:
        """Save new text and look at memory from time to time."""
        self.set_interval(SAVE, self.save)
        self.set_interval(LOOK, self.look_at_memory)

    def on_unmount(self) -> None:
        """Save the reply and cancel everything; threads end within a step."""
        run_reported(self.app, self.save)
        self.cancel()
        self._left.set()

    @property
    def is_replying(self) -> bool:
        """Whether a reply is being generated."""
        return self.reply is not None

    @property
    def is_busy(self) -> bool:
        """Whether there is no engine, another one is being opened, or a reply is being generated."""
        return self.session.engine is None or self.coming is not None or self.is_replying

    def load(self, pair: Pair) -> None:
        """Open a pair; the current one stays open until then. Not to be called during a reply."""
        before, self.coming = self._opening, pair
        self.titles.cancel()

        def is_unwanted() -> bool:
            return self._left.is_set() or self.coming is not pair

        def work() -> None:
            if before is not None:
                before.wait()  # it ends at its next check of is_unwanted
            try:
                if not is_unwanted():
                    open_pair(self.session, pair, is_unwanted, self.post_message)
            finally:
                done.set()

        done = self._opening = Event()
        self.run_worker(work, thread=True, group="engine")

    def give_up(self) -> None:
        """Cancel opening the other pair; the current one stays."""
        self.coming = None

    @on(ModelReady)
    async def _take_engine(self, event: ModelReady) -> None:
        if self._left.is_set() or event.pair is not self.coming:
            event.stop()
            self.run_worker(event.engine.close, thread=True, group="engine")
            return
        old, self.session.engine, self.coming = self.session.engine, event.engine, None
        self.session.take(event.pair)
        self.numbers.reply, self.numbers.explanation = Stats(), event.engine.explain()
        loaded = f"loaded {event.pair.name} in {event.seconds:.1f} s, {event.engine.facts.n_ctx:,} tokens of context"
        for told in filter(None, (loaded, event.engine.facts.left_out)):
            self.session.note(told)
        await asyncio.to_thread(self.session.stop_serving)  # editors' replies end with an error
        if old is not None:
            self.run_worker(old.close, thread=True, group="engine")

    @on(ModelFailed)
    def _note_failure(self, event: ModelFailed) -> None:
        if event.pair is not self.coming:
            event.stop()
            return
        self.coming = None
        self.session.note(event.reason)

    def look_at_memory(self) -> None:
        """Report what the engine has disabled for lack of memory, or enabled again, since the last look."""
        given_up = self.session.engine.status.given_up if self.session.engine else ""
        if given_up != self._given_up:
            self._given_up = given_up
            self.session.note(given_up or "what was disabled for lack of memory is back")
            self.post_message(MemoryChanged())

    def start(self, request: ReplyRequest) -> None:
        """Start a reply. To be called only while idle."""
        assert self.session.engine is not None
        assert self.reply is None
        self.titles.cancel()
        self.reply = ActiveReply(self.session.engine, request)
        self.numbers.reply, self._pace, self.answered = Stats(), Pace(), request.message.id
        work = partial(make_reply, self.reply, self.post_message)
        self.call_after_refresh(self.run_worker, work, thread=True, group="engine")  # drawing slows down passes

    def cancel(self) -> None:
        """End the reply immediately, whatever its thread still does; ReplyEnded follows."""
        if self.reply is not None:
            self.reply.cancel()
            self._end(self.reply, {"end": STOPPED})

    @on(PromptRead)
    def _count_prompt(self, event: PromptRead) -> None:
        self.numbers.reply.prompt_n = event.total and event.total + 1  # 0: another server does not report it

    @on(TextGathered)
    def _plan_to_show(self, event: TextGathered) -> None:
        event.stop()
        show = partial(self.post_message, ReplyGrew())
        self.set_timer(self._pace.pause(), partial(self._gap.wait, show, self.set_timer))

    def collect(self) -> list[Piece]:
        """Return the new text of the reply, and add its passes to the numbers."""
        if self.reply is None:
            return []
        batch = self.reply.collect()
        self.numbers.add(batch.passes, batch.explanation)
        return batch.pieces

    @on(ReplyFinished)
    def _take_end(self, event: ReplyFinished) -> None:
        event.stop()
        if event.reply is not self.reply:  # it was stopped before
            return
        self.collect()
        self.numbers.explanation = event.explanation or self.numbers.explanation
        if event.last is not None and event.last.stats is not None:
            self.numbers.reply = event.last.stats
        if event.error is not None:
            facts, remark = failure_of(event.error, event.reply)
            self._end(event.reply, facts, remark, has_failed=True)
        else:
            self._end(event.reply, end_of(event.last, event.reply), event.last.notice if event.last else "")

    def _end(self, reply: ActiveReply, end: dict[str, Any], remark: str = "", has_failed: bool = False) -> None:
        """Store the reply, and leave the replying state."""
        self.collect()
        self.reply, stats = None, self.numbers.reply
        facts = {**facts_of(stats), **self.session.signature(), "marks": marks_of(reply.pieces), **end}
        is_unfinished, before = bool(end.pop("end", "")), reply.request.message
        if reply.has_only_begun and (is_unfinished or before.content):  # no new text, so the old numbers stay
            facts = end | before.facts
            remark = remark or ("" if is_unfinished else NOTHING_ADDED)
        self._write(reply, facts)
        read = f"{stats.prompt_n - stats.cached_n:,} tokens read in {stats.prompt_seconds:.1f} s"
        self.session.note(remark or f"reply: {', '.join([read] * bool(stats.prompt_seconds) + [line(stats)])}")
        self.post_message(ReplyEnded(reply.message_id, reply.pieces, facts, remark, has_failed))

    def save(self) -> None:
        """Write the reply so far to the store."""
        if self.reply is not None and not self.reply.is_saved:
            begun = {**self.session.signature(), "marks": marks_of(self.reply.pieces), "end": INTERRUPTED}
            self._write(self.reply, begun)  # in case the chat crashes now

    def _write(self, reply: ActiveReply, facts: dict[str, Any]) -> None:
        self.session.store.update_message(reply.message_id, text_of(reply.pieces), facts)
        reply.is_saved = True
