"""The requests for one reply, whose events are read on a thread of their own: a reply may wait for long, and whoever
asks for it must not.

Knows streams and what is asked; knows nothing of what events say.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import Any

from runtime.conversation.window import talk_of, without_oldest
from runtime.engine.engine import Ask
from runtime.upstream.connection import EventStream

Event = dict[str, Any]
Came = Event | BaseException | None  # an event, what went wrong, or the end
NOTHING: Event = {}  # came in time


class Exchange:
    """What is asked now, and what comes of it; `open_stream` is given what is asked."""

    def __init__(self, ask: Ask, open_stream: Callable[[Ask], EventStream]) -> None:
        self._open_stream = open_stream
        self._begin(ask)

    def _begin(self, ask: Ask) -> None:
        self._ask, self._stream, self._came = ask, self._open_stream(ask), SimpleQueue[Came]()
        work = threading.Thread(target=read, args=(self._stream, self._came), daemon=True, name="upstream")
        work.start()

    def next(self, seconds: float) -> Event | None:
        """The next event, None at the end, NOTHING where none comes within that time. Raises what went wrong."""
        try:
            came = self._came.get(timeout=seconds)
        except Empty:
            return NOTHING
        if isinstance(came, BaseException):
            raise came
        return came

    def ask_for_less(self) -> bool:
        """Asks once more without the oldest turn, where one may be left out."""
        talk = talk_of(self._ask.prompt) if self._ask.when_full == "drop-oldest" else None
        kept = without_oldest(talk.messages) if talk else []
        if talk is None or len(kept) == len(talk.messages):
            return False
        self._begin(replace(self._ask, prompt=replace(talk, messages=tuple(kept))))
        return True

    def stop(self) -> None:
        """Nobody wants the rest."""
        self._stream.stop()


def read(stream: EventStream, came: SimpleQueue[Came]) -> None:
    """Puts the events there as they come, then what ended them."""
    try:
        for event in stream.events():
            came.put(event)
        came.put(None)
    except BaseException as error:  # it is raised where the reply is made
        came.put(error)
