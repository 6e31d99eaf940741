"""The requests for one reply, whose events are read on a thread of their own, because the caller must not block.

Knows streams and requests; does not interpret events.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import Any

from runtime.conversation.window import chat_prompt_of, without_oldest
from runtime.engine.engine import Ask
from runtime.upstream.connection import EventStream

Event = dict[str, Any]
Came = Event | BaseException | None  # an event, an error, or the end
NOTHING: Event = {}  # no event arrived in time


class Exchange:
    """The current request and its events; `open_stream` sends a request."""

    def __init__(self, ask: Ask, open_stream: Callable[[Ask], EventStream]) -> None:
        self._open_stream = open_stream
        self._begin(ask)

    def _begin(self, ask: Ask) -> None:
        self._ask, self._stream, self._came = ask, self._open_stream(ask), SimpleQueue[Came]()
        work = threading.Thread(target=read, args=(self._stream, self._came), daemon=True, name="upstream")
        work.start()

    def next(self, seconds: float) -> Event | None:
        """Return the next event, None at the end, or NOTHING after that time. Raises the error of the stream."""
        try:
            came = self._came.get(timeout=seconds)
        except Empty:
            return NOTHING
        if isinstance(came, BaseException):
            raise came
        return came

    def ask_for_less(self) -> bool:
        """Send the request again without the oldest turn; return False if none may be left out."""
        talk = chat_prompt_of(self._ask.prompt) if self._ask.when_full == "drop-oldest" else None
        kept = without_oldest(talk.messages) if talk else []
        if talk is None or len(kept) == len(talk.messages):
            return False
        self._begin(replace(self._ask, prompt=replace(talk, messages=tuple(kept))))
        return True

    def stop(self) -> None:
        """Cancel the rest of the reply."""
        self._stream.stop()


def read(stream: EventStream, came: SimpleQueue[Came]) -> None:
    """Put the events into `came` as they arrive, then None or the error that ended them."""
    try:
        for event in stream.events():
            came.put(event)
        came.put(None)
    except BaseException as error:  # `Exchange.next` raises it
        came.put(error)
