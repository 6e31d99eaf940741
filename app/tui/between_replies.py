"""Work between replies: a chat gets its title from the model that answered; what is typed is kept, however the chat
ends, and its prompt is read ahead, as far as it can no longer change.

Knows the session and the store, and receives functions that return what is typed; gives way to other requests, renames
nothing and sends no question.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import psutil
from textual.message import Message as Event

from app.chats.branch import ChatBranch
from app.chats.store import Store, read_json
from app.chats.titles import request_for, title_from, title_of
from app.tui.pace import Invisible
from app.tui.private_textual import run_reported
from app.tui.session import Session
from runtime.core.errors import SlipstreamError
from runtime.engine import Chunk, Engine, Sampling
from runtime.engine.engine import Ask

QUIET = 4.0  # seconds after a reply before a title is generated
TITLE_TOKENS = 24  # maximal tokens of a title
UNSENT = "unsent"  # preference name of what is typed
SAVE = 1.0  # seconds between two checks of it
LOOK = 0.25  # seconds between two looks at what is typed
PAUSE = 0.5  # seconds without a change after which it is read
AGAIN = 10.0  # seconds after which it is tried again, if something else came between


@dataclass(frozen=True, slots=True)
class TitleRequest:
    """A chat that is titled by the first line of its question."""

    chat: int
    title: str
    question: str


class Titles(Invisible):
    """Generates a title for one chat at a time; `cancel` gives way. Posts Found."""

    @dataclass
    class Found(Event):
        """The model's title for a chat that had the title `before`."""

        chat: int
        before: str
        title: str

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        self._request: TitleRequest | None = None

    def plan(self, branch: ChatBranch) -> None:
        """Plan a title for a chat that has just begun, unless there is another request in the next few seconds."""
        self.cancel()
        messages = branch.messages()
        if branch.id is None or len(messages) != 2 or not messages[1].content:
            return
        if branch.typed and branch.title == title_of(branch.typed):
            self._request = request = TitleRequest(branch.id, branch.title, branch.typed)
            self.set_timer(QUIET, partial(self._begin, request))

    def cancel(self) -> None:
        """Cancel the title, planned or being generated."""
        self._request = None

    def on_unmount(self) -> None:
        """Cancel; the thread ends within a step."""
        self.cancel()

    def _begin(self, request: TitleRequest) -> None:
        engine = self._session.engine
        if request is self._request and engine is not None:
            self.run_worker(partial(self._find, engine, request), thread=True, group="engine")

    def _find(self, engine: Engine, request: TitleRequest) -> None:
        """Generate the title. Runs in the thread."""
        ask, is_unwanted = request_for(request.question), lambda: request is not self._request
        try:
            chunks = engine.reply(ask, Sampling(temperature=0), TITLE_TOKENS, cancel=is_unwanted)
            title = title_from("".join(chunk.text for chunk in chunks), request.question)
        except SlipstreamError:  # no room, no chat template, or the engine is being closed
            return
        if title and request is self._request:
            self.post_message(self.Found(request.chat, request.title, title))


class Unsent(Invisible):
    """Stores the text with this process's id; while that process runs, no other chat takes the text."""

    def __init__(self, store: Store, written: Callable[[], str], begin: Callable[[str], object]) -> None:
        super().__init__()
        self._store, self._written, self._begin_with, self._kept = store, written, begin, ""

    def on_mount(self) -> None:
        """Restore the text of a chat that no longer runs."""
        left = read_json(self._store.preference(UNSENT))
        if left.get("text") and not runs_elsewhere(left.get("process"), left.get("began")):
            self._kept = left["text"]
            self._begin_with(self._kept)
        self.set_interval(SAVE, self.keep)

    def on_unmount(self) -> None:
        """Store the text a last time."""
        run_reported(self.app, self.keep)

    def keep(self) -> None:
        """Store the text if it has changed."""
        if (text := self._written()) != self._kept:
            self._kept = text
            here = psutil.Process()
            left = {"text": text, "process": here.pid, "began": here.create_time()}
            self._store.set_preference(UNSENT, json.dumps(left))


def runs_elsewhere(process: int | None, began: float | None) -> bool:
    """Return whether this is another process than ours, and still running."""
    with suppress(psutil.Error):
        found = psutil.Process(process)
        is_same = found.create_time() == began and found.status() != psutil.STATUS_ZOMBIE
        return is_same and found.pid != os.getpid()
    return False


class NextPrompt(NamedTuple):
    """What is known of the next prompt. Texts of the same conversation have the same `conversation`."""

    conversation: tuple[object, ...]
    text: str  # complete words of the question

    def continues(self, other: NextPrompt) -> bool:
        """Return whether reading this one goes on where the other ends."""
        return self.conversation == other.conversation and self.text.startswith(other.text)


class ReadingAhead(Invisible):
    """Lets the engine read the next prompt ahead while it has nothing else to do; a question ends that at once.

    A longer text waits until the shorter one has been read, because a pass that is stopped is lost.
    """

    @dataclass
    class HasEnded(Event):
        """Reading a prompt has ended, with this finish reason; "": it was refused, or failed."""

        read: NextPrompt
        finish_reason: str

    def __init__(self, session: Session, known: Callable[[], NextPrompt | None], request: Callable[[str], Ask]) -> None:
        """`known` returns the next prompt, or None if nothing is to be read now; `request` what to ask for reading the
        prompt of a question that begins with a text.
        """
        super().__init__()
        self._session, self._known, self._request = session, known, request
        self._seen: NextPrompt | None = None
        self._ready_at = 0.0  # when that is to be read (time.monotonic)
        self._begun: tuple[Engine, NextPrompt] | None = None  # begun last, with its engine
        self._is_reading = False

    def on_mount(self) -> None:
        """Look at what is typed from time to time."""
        self._timer = self.set_interval(LOOK, self.look)

    def look(self) -> None:
        """Begin to read what is known of the next prompt, once it has not changed for a moment."""
        try:
            self._look()
        except Exception as error:  # it is not worth ending the chat, which tells it where it matters
            self._timer.stop()
            self._session.note(f"nothing is read ahead any more: {error}")

    def _look(self) -> None:
        known, engine, now = self._known(), self._session.engine, time.monotonic()
        if known != self._seen:
            self._seen, self._ready_at = known, now + PAUSE
        elif known and engine and now >= self._ready_at and not self._is_waiting(engine, known):
            self._begun, self._is_reading = (engine, known), True
            self.run_worker(partial(self._begin, engine, self._request(known.text), known), thread=True, group="ahead")

    def _is_waiting(self, engine: Engine, known: NextPrompt) -> bool:
        """Return whether a prompt has been read, or its beginning is being read."""
        if self._begun is None or self._begun[0] is not engine:
            return False
        return known == self._begun[1] or (self._is_reading and known.continues(self._begun[1]))

    def _begin(self, engine: Engine, ask: Ask, known: NextPrompt) -> None:
        """Begin reading. Runs in a thread, because the engine may be busy; another engine may be open by now."""

        def sink(output: Chunk | Exception) -> None:
            reason = "" if isinstance(output, Exception) else output.finish_reason
            if reason is not None:
                self.post_message(self.HasEnded(known, reason))

        try:
            engine.add(ask, sink)
        except Exception as refusal:
            sink(refusal)

    def on_reading_ahead_has_ended(self, event: HasEnded) -> None:
        """Let the next text be read; the same one again after a while if another request came between."""
        event.stop()
        if self._begun is not None and self._begun[1] is event.read:
            self._is_reading = False
            if event.finish_reason == "cancelled":
                self._begun, self._ready_at = None, time.monotonic() + AGAIN


def complete_words(text: str) -> str:
    """Return a text without its last word, which may still change, and without white space around it."""
    if text[-1:].isspace():
        return text.strip()
    *_, last = text.rsplit(None, 1) or [""]
    return text[: len(text) - len(last)].strip()
