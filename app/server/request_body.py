"""Reads a request's body with limits on size, time and number, and decompresses it.

Must not know its content.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from starlette.requests import Request

from app.server.errors import ApiError

MIB = 2**20
MAX_BODY = 32 * MIB  # bytes, compressed or not
TIMEOUT = 30.0  # seconds to wait for the next bytes of a body, and for a place for a large body
LARGE, N_LARGE = MIB, 4  # bytes of a large body, and how many may be in memory; each takes about ten times its size
PACKED = {"gzip": 31, "x-gzip": 31, "deflate": 15}  # zlib's wbits: window size and header format


class Room:
    """Places in memory for the large bodies of one server."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(N_LARGE)

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Hold a place for the block. Raises ApiError if none becomes free in time."""
        try:
            await asyncio.wait_for(self._places.acquire(), TIMEOUT)
        except TimeoutError:
            message = f"{N_LARGE} large requests are being read already. Try again in a moment."
            raise ApiError(503, message, code="queue_full", retry_after=5) from None
        try:
            yield
        finally:
            self._places.release()


@asynccontextmanager
async def reading(request: Request, room: Room) -> AsyncIterator[bytearray]:
    """Read the body and decompress it. A large one holds a place during the block.

    Raises ApiError if it is too long or its encoding cannot be read.
    """
    if {"content-length", "transfer-encoding"} <= {name.lower() for name in request.headers}:
        message = "Content-Length and Transfer-Encoding contradict each other. Send one of them."
        raise ApiError(400, message, code="framing")
    if int(request.headers.get("content-length") or 0) > MAX_BODY:
        raise _too_long()
    async with AsyncExitStack() as stack:
        yield await _read(request, lambda: stack.enter_async_context(room.place()))


async def _read(request: Request, take_place: Callable[[], Awaitable[None]]) -> bytearray:
    """Read the body, and take a place once it really is large: a Content-Length alone takes none."""
    unpacker = unpacker_for(request.headers.get("content-encoding", "identity"))
    body, has_place = bytearray(), unpacker.grows
    if has_place:
        await take_place()
    async for part in parts(request):
        body += unpacker.feed(part, MAX_BODY + 1 - len(body))
        if len(body) > MAX_BODY:
            raise _too_long()
        if len(body) > LARGE and not has_place:
            await take_place()
            has_place = True
    unpacker.finish()
    return body


async def parts(request: Request) -> AsyncIterator[bytes]:
    """Yield the body piece by piece. Raises ApiError if a piece does not arrive in time."""
    stream = aiter(request.stream())
    try:
        while (part := await asyncio.wait_for(anext(stream, None), TIMEOUT)) is not None:
            yield part
    except TimeoutError:
        message = f"Nothing of the request arrived for {TIMEOUT:g} s. Send it without pauses."
        raise ApiError(408, message, code="request_timeout") from None


class Unpacker:
    """Passes bytes on unchanged."""

    grows = False  # whether a small part can become a large one

    def feed(self, part: bytes, limit: int) -> bytes:
        """Return the next bytes of the body. Those beyond the limit may be missing."""
        return part

    def finish(self) -> None:
        """Raises ApiError if the body is incomplete."""


class Inflater(Unpacker):
    """Decompresses zlib data: any number of members one after the other, as gzip allows."""

    grows = True

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


def unpacker_for(encoding: str) -> Unpacker:
    """Return the unpacker for a Content-Encoding. Raises ApiError for an unknown one."""
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return Unpacker()
    if name not in PACKED:
        raise ApiError(
            415, "Content-Encoding must be gzip or deflate. Compress the body so, or not at all.", code="encoding"
        )
    return Inflater(PACKED[name])


def _too_long() -> ApiError:
    return ApiError(413, f"The request is longer than {MAX_BODY // MIB} MiB. Send less text.", code="request_too_large")


def _broken() -> ApiError:
    return ApiError(
        400,
        "The body is not compressed as Content-Encoding says. Compress all of it, or leave the header out.",
        code="encoding",
    )
