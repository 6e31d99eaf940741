"""Sends a task's chunks to the client, as one JSON body or as server-sent events.

Knows HTTP; a formatter decides the content of bodies and events.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.server.errors import ApiError, as_api_error, client_gone, error_body, error_response
from app.server.middleware import tasks_of
from app.server.scheduled_task import ScheduledTask
from app.server.wire import PING, SSE, Event, EventStreamResponse, Framing, JSONBody
from runtime.engine import Chunk


class Formatter(ABC):
    """An interface's way to write a reply. One instance for each request."""

    done = b""  # the stream's last line
    framing: Framing = SSE
    asks_at_end: bool = True  # whether its last events need the engine
    is_quick: bool = False  # whether its body is written sooner than a thread is woken

    def first_events(self) -> Iterable[Event]:
        """Return the events before the first chunk."""
        return ()

    def chunk_events(self, chunk: Chunk) -> Iterable[Event]:
        """Return the events for one chunk, which is the result of one target pass."""
        return ()

    def last_events(self, last: Chunk) -> Iterable[Event]:
        """Return the events after the last chunk, with the numbers."""
        return ()

    def error_event(self, error: ApiError, body: Event) -> Event:
        """Return the event for an error that ends a stream early. `body`: that of a refusal."""
        return body

    @abstractmethod
    def body(self, chunks: Sequence[Chunk]) -> Event | list[Event]:
        """Return all replies as one JSON body."""


def by_reply(chunks: Iterable[Chunk]) -> list[list[Chunk]]:
    """Split a sequence of chunks into the chunks of each reply."""
    found: list[list[Chunk]] = [[]]
    for chunk in chunks:
        found[-1].append(chunk)
        if chunk.finish_reason:
            found.append([])
    return found[:-1]


class TaskResponse:
    """An ASGI application that answers one request with its task's chunks.

    Cancels the task when the client disconnects.
    """

    def __init__(self, scheduled: ScheduledTask, formatter: Formatter, stream: bool) -> None:
        self.scheduled, self.formatter, self.stream = scheduled, formatter, stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the reply. An error before the first chunk becomes an HTTP status; a later one, in a stream, becomes an
        event.
        """
        tasks_of(scope).append(self.scheduled)
        async with cancelled_on_disconnect(receive, self.scheduled):
            try:
                response = await self._response(scope["path"])
            except ApiError as error:
                response = error_response(error, scope["path"])
            await response(scope, receive, send)

    async def _response(self, path: str) -> Response:
        """Return the response at that path. A stream begins with its first text, so that the model has the processor to
        itself until then. After a long wait it begins earlier, to show that it is alive.
        """
        started = asyncio.ensure_future(self.scheduled.started())
        if not self.stream:
            await started
            return await self._body()
        head, lines = self._encoded(self.formatter.first_events()), self._lines(started, path)
        head += await anext(lines)
        if started.done():
            await started
        return WatchedStream(joined(head, lines), self.formatter.framing.media_type)

    async def _body(self) -> Response:
        chunks = [chunk async for some in self.scheduled.chunks() for chunk in some]
        if self.formatter.is_quick:
            return JSONBody(self.formatter.body(chunks))
        return await asyncio.to_thread(lambda: JSONBody(self.formatter.body(chunks)))

    async def _lines(self, started: asyncio.Future[None], path: str) -> AsyncIterator[bytes]:
        """Yield encoded events, one piece for chunks that arrived together, and a comment after a long silence."""
        comment = self.formatter.framing.comment
        try:
            while not (await asyncio.wait({started}, timeout=PING))[0]:
                yield comment
            await started
            async for chunks in self.scheduled.chunks(PING):
                events = b"".join([await self._written(chunk) for chunk in chunks]) if chunks else comment
                if events:
                    yield events
        except Exception as error:
            refusal = as_api_error(error)
            yield self._encoded([self.formatter.error_event(refusal, error_body(refusal, path))])
        else:
            yield self.formatter.done

    async def _written(self, chunk: Chunk) -> bytes:
        """Return the encoded events of a chunk. Runs in a thread where the formatter must query the engine, for log
        probabilities and perhaps at the end: in one of asyncio's, because requests that begin use all of AnyIO's where
        many long prompts come at once.
        """
        asks = chunk.logprobs or (chunk.finish_reason and self.formatter.asks_at_end)
        return await asyncio.to_thread(self._events, chunk) if asks else self._events(chunk)

    def _events(self, chunk: Chunk) -> bytes:
        last = self.formatter.last_events(chunk) if chunk.finish_reason else ()
        return self._encoded((*self.formatter.chunk_events(chunk), *last))

    def _encoded(self, events: Iterable[Event]) -> bytes:
        return b"".join(map(self.formatter.framing.encode, events))


class WatchedStream(EventStreamResponse):
    """A stream without its own check for disconnects, because `cancelled_on_disconnect` watches the connection."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        await self.stream_response(send)


async def joined(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the first line and the rest."""
    yield first
    async for line in rest:
        yield line


async def disconnected(receive: Receive) -> None:
    """Return when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


@asynccontextmanager
async def cancelled_on_disconnect(receive: Receive, scheduled: ScheduledTask) -> AsyncIterator[None]:
    """Cancel the task when the block ends or the client disconnects."""

    async def watch() -> None:
        await disconnected(receive)
        scheduled.cancel()
        scheduled.counts.has_client_left = True
        scheduled.emit(client_gone())  # the engine emits nothing for a task that never started

    watcher = asyncio.create_task(watch())
    try:
        yield
    finally:
        watcher.cancel()
        scheduled.cancel()
