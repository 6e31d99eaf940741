"""Reads a request's body with limits on size, time and memory, and decompresses it.

Must not know its content.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from starlette.requests import Request

from app.server.errors import ApiError
from runtime.core.memory import trim_heap

MIB = 2**20
MAX_BODY = 32 * MIB  # bytes, compressed or not
MAX_ARRIVING = 4 * MAX_BODY  # bytes of all bodies that are not complete, or wait to be read
TIMEOUT = 30.0  # seconds to wait for the next bytes of a body, half of those for all, and to wait to be read
LARGE, N_LARGE = MIB, 4  # bytes of a large body, and how many are read at once, each in about ten times its size
N_SMALL = 8  # other bodies that are read at once
MUCH, SOON = 16 * MIB, 1.0  # bytes of bodies whose memory is returned, and seconds until their connections are closed
PACKED = {"gzip": 31, "x-gzip": 31, "deflate": 15}  # zlib's wbits: window size and header format


@dataclass(eq=False, slots=True)
class Arrival:
    """A body that is not complete, or waits to be read."""

    limit: asyncio.Timeout
    body: bytearray = field(default_factory=bytearray)
    is_complete: bool = False
    is_displaced: bool = False  # newer ones need its memory

    def wait(self, until: float) -> None:
        """Wait until then, by the event loop's clock."""
        if not (self.is_displaced or self.limit.expired()):
            self.limit.reschedule(until)

    def displace(self) -> None:
        """Stop waiting, which frees the memory."""
        self.wait(0.0)
        self.is_displaced = True


class Room:
    """The memory for bodies of one server. Those that arrive share it, and the oldest one makes room for newer ones, so
    that slow senders keep nobody out.
    """

    def __init__(self) -> None:
        self._large, self._small = asyncio.Semaphore(N_LARGE), asyncio.Semaphore(N_SMALL)
        self._turn = asyncio.Lock()
        self._arriving, self._n_bytes = dict[Arrival, None](), 0
        self._n_kept = 0  # bytes of bodies that wait for their model
        self._holds_much = False  # it has held much since memory was last returned

    @asynccontextmanager
    async def arrival(self) -> AsyncIterator[Arrival]:
        """Hold memory for a body during the block. Raises ApiError if it takes too long, or others need the memory."""
        async with asyncio.timeout(None) as limit:
            arrival = Arrival(limit)
            self._arriving[arrival] = None
            try:
                yield arrival
            except asyncio.CancelledError:
                if limit.expired():
                    raise _refusal(arrival) from None
                raise
            finally:
                self._remove(arrival)

    def add(self, arrival: Arrival, part: bytes) -> None:
        """Add bytes to a body. If all bodies together become too large, the oldest ones are given up."""
        if not arrival.is_displaced:
            arrival.body += part
            self._n_bytes += len(part)
            self._holds_much |= self._n_bytes > MUCH
        while self._n_bytes > MAX_ARRIVING:
            oldest = next(iter(self._arriving))
            self._remove(oldest)
            oldest.displace()

    def _remove(self, arrival: Arrival) -> None:
        if arrival in self._arriving:
            del self._arriving[arrival]
            self._n_bytes -= len(arrival.body)
        if self._holds_much and not self._arriving:
            self._holds_much = False
            loop = asyncio.get_running_loop()
            loop.call_later(SOON, loop.run_in_executor, None, trim_heap)

    async def take_turns(self) -> None:
        """Let one body after the other have its next part, each in a turn of the event loop, so that a request without
        a body waits for few of them.
        """
        async with self._turn:
            await asyncio.sleep(0)

    def keep(self, request: Request, body: bytearray) -> None:
        """Keep a body until it is read again. Raises ApiError if too many are kept."""
        if self._n_kept + len(body) > MAX_ARRIVING:
            raise _no_memory()
        self._n_kept += len(body)
        request.state.body = body

    def take(self, request: Request) -> bytearray | None:
        """Return the body that is kept for a request, if one is, and keep it no longer."""
        body: bytearray | None = getattr(request.state, "body", None)
        if body is not None:
            self._n_kept -= len(body)
            del request.state.body
        return body

    def place_for(self, body: bytearray) -> asyncio.Semaphore:
        """Return the places where a body of that size is read."""
        return self._large if len(body) > LARGE else self._small


@asynccontextmanager
async def reading(request: Request, room: Room, keeps: bool = False) -> AsyncIterator[bytearray]:
    """Read the body and decompress it, unless it was kept. It holds a place during the block.

    Raises ApiError if it is too long or too slow, or its encoding cannot be read.
    """
    if (body := room.take(request)) is None:
        body, place = await _arrived(request, room)
    else:
        place = room.place_for(body)
        await place.acquire()
    try:
        if keeps:
            room.keep(request, body)
        yield body
    finally:
        place.release()


def has_body(request: Request) -> bool:
    """Return whether a body comes with the request."""
    return "transfer-encoding" in request.headers or int(request.headers.get("content-length") or 0) > 0


async def _arrived(request: Request, room: Room) -> tuple[bytearray, asyncio.Semaphore]:
    """Return the body, and its place, which it holds. Raises ApiError."""
    if {"content-length", "transfer-encoding"} <= {name.lower() for name in request.headers}:
        message = "Content-Length and Transfer-Encoding contradict each other. Send one of them."
        raise ApiError(400, message, code="framing")
    if int(request.headers.get("content-length") or 0) > MAX_BODY:
        raise _too_long()
    async with room.arrival() as arrival:
        await _receive(request, room, arrival)
        arrival.is_complete = True
        arrival.wait(asyncio.get_running_loop().time() + TIMEOUT)
        place = room.place_for(arrival.body)
        await place.acquire()
    return arrival.body, place


async def _receive(request: Request, room: Room, arrival: Arrival) -> None:
    """Receive the whole body. Raises ApiError."""
    inflater = inflater_for(request.headers.get("content-encoding", "identity"))
    loop = asyncio.get_running_loop()
    end = loop.time() + 2 * TIMEOUT
    arrival.wait(loop.time() + TIMEOUT)
    async for part in request.stream():
        room.add(arrival, inflater.feed(part, MAX_BODY + 1 - len(arrival.body)) if inflater else part)
        if len(arrival.body) > MAX_BODY:
            raise _too_long()
        arrival.wait(min(loop.time() + TIMEOUT, end))
        await room.take_turns()
    if inflater:
        inflater.finish()


def _refusal(arrival: Arrival) -> ApiError:
    """Return the error for a body that was waited for long enough."""
    if arrival.is_displaced or arrival.is_complete:
        return _no_memory()
    message = (
        f"The request did not arrive within {2 * TIMEOUT:g} s, or nothing of it for {TIMEOUT:g} s. "
        "Send it without pauses, or send less."
    )
    return ApiError(408, message, code="request_timeout")


class Inflater:
    """Decompresses zlib data: any number of members one after the other, as gzip allows."""

    def __init__(self, window: int) -> None:
        self._window, self._zlib, self._is_fresh = window, zlib.decompressobj(window), True

    def feed(self, part: bytes, limit: int) -> bytes:
        """Return decompressed bytes, never more than the limit. Raises ApiError."""
        found = bytearray()
        while part and len(found) < limit:
            try:
                found += self._zlib.decompress(part, limit - len(found))
            except zlib.error:
                raise _broken() from None
            self._is_fresh, part = self._zlib.eof, self._zlib.unused_data
            if self._zlib.eof:
                self._zlib = zlib.decompressobj(self._window)
        return bytes(found)

    def finish(self) -> None:
        """Raises ApiError if the last member is incomplete."""
        if not self._is_fresh:
            raise _broken()


def inflater_for(encoding: str) -> Inflater | None:
    """Return what decompresses a Content-Encoding, if anything must. Raises ApiError for an unknown one."""
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return None
    if name not in PACKED:
        raise ApiError(
            415, "Content-Encoding must be gzip or deflate. Compress the body so, or not at all.", code="encoding"
        )
    return Inflater(PACKED[name])


def _no_memory() -> ApiError:
    message = "Other requests take the memory for this one. Try again in a moment."
    return ApiError(503, message, code="queue_full", retry_after=5)


def _too_long() -> ApiError:
    return ApiError(413, f"The request is longer than {MAX_BODY // MIB} MiB. Send less text.", code="request_too_large")


def _broken() -> ApiError:
    return ApiError(
        400,
        "The body is not compressed as Content-Encoding says. Compress all of it, or leave the header out.",
        code="encoding",
    )
