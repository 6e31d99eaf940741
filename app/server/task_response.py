"""A task's chunks on their way to the client, as one JSON body or as server-sent events.

Knows HTTP; what the bodies and events say is a formatter's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.server.errors import ApiError, as_api_error, client_gone
from app.server.refusal import error_response
from app.server.request_log import tasks_of
from app.server.scheduled_task import ScheduledTask
from app.server.wire import PING, SSE, Event, EventStreamResponse, Framing, JSONBody
from runtime.engine import Chunk


class Formatter(Protocol):
    """How an interface writes a reply. Made anew for each request."""

    done: bytes  # the stream's last line
    framing: Framing = SSE
    asks_at_end: bool = True  # do its last events need the engine?

    def first_events(self) -> Iterable[Event]:
        """Events before the first chunk."""

    def chunk_events(self, chunk: Chunk) -> Iterable[Event]:
        """Events for one chunk: what a target pass brought."""

    def last_events(self, last: Chunk) -> Iterable[Event]:
        """Events after the last chunk, with the numbers."""

    def error_events(self, error: ApiError) -> Iterable[Event]:
        """Events for what ends a stream before its time."""
        return [error.body()]

    def body(self, chunks: Sequence[Chunk]) -> Event | list[Event]:
        """All replies as one JSON body."""


def by_reply(chunks: Iterable[Chunk]) -> list[list[Chunk]]:
    """The chunks of each reply, out of those of several one after the other."""
    found: list[list[Chunk]] = [[]]
    for chunk in chunks:
        found[-1].append(chunk)
        if chunk.finish_reason:
            found.append([])
    return found[:-1]


class TaskResponse:
    """An ASGI application that answers one request with what its task brings.

    The task is cancelled when the client goes away.
    """

    def __init__(self, scheduled: ScheduledTask, formatter: Formatter, stream: bool) -> None:
        self.scheduled, self.formatter, self.stream = scheduled, formatter, stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Errors before the first chunk become a status; later ones, in a stream, an event."""
        tasks_of(scope).append(self.scheduled)
        async with cancelled_on_disconnect(receive, self.scheduled):
            try:
                response = await self._response()
            except ApiError as error:
                response = error_response(error, scope["path"])
            await response(scope, receive, send)

    async def _response(self) -> Response:
        """A stream begins with its first text, which leaves the processor to the model until then, or when the wait is
        long: then it shows that it lives.
        """
        started = asyncio.ensure_future(self.scheduled.started())
        if not self.stream:
            await started
            return await self._body()
        head, lines = self._encoded(self.formatter.first_events()), self._lines(started)
        head += await anext(lines)
        if started.done():
            await started
        return WatchedStream(joined(head, lines), self.formatter.framing.media_type)

    async def _body(self) -> Response:
        chunks = [chunk async for some in self.scheduled.chunks() for chunk in some]
        return await run_in_threadpool(lambda: JSONBody(self.formatter.body(chunks)))

    async def _lines(self, started: asyncio.Future[None]) -> AsyncIterator[bytes]:
        """The events as they go over the wire, those of chunks that have come together in one piece; a comment where
        none come for long.
        """
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
            yield self._encoded(self.formatter.error_events(as_api_error(error)))
        else:
            yield self.formatter.done

    async def _written(self, chunk: Chunk) -> bytes:
        """The events of a chunk. Log probabilities name tokens, and so may the end, which the engine is asked about."""
        asks = chunk.logprobs or (chunk.finish_reason and self.formatter.asks_at_end)
        return await run_in_threadpool(self._events, chunk) if asks else self._events(chunk)

    def _events(self, chunk: Chunk) -> bytes:
        last = self.formatter.last_events(chunk) if chunk.finish_reason else ()
        return self._encoded((*self.formatter.chunk_events(chunk), *last))

    def _encoded(self, events: Iterable[Event]) -> bytes:
        return b"".join(map(self.formatter.framing.encode, events))


class WatchedStream(EventStreamResponse):
    """A stream whose end with the connection is seen to already."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the events."""
        await self.stream_response(send)


async def joined(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """All lines."""
    yield first
    async for line in rest:
        yield line


@asynccontextmanager
async def cancelled_on_disconnect(receive: Receive, scheduled: ScheduledTask) -> AsyncIterator[None]:
    """The block ends as usual; the task ends with it, or with the connection."""

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        scheduled.cancel()
        scheduled.counts.has_client_left = True
        scheduled.emit(client_gone())  # the engine emits nothing for a task that it never started

    watcher = asyncio.create_task(watch())
    try:
        yield
    finally:
        watcher.cancel()
        scheduled.cancel()
