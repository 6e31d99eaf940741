"""A job's chunks on their way to the client: as one JSON body, or as server-sent events.

Knows HTTP; the words are a form's.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from starlette.types import Receive, Scope, Send

from app.server.errors import JSON, ApiError, as_api_error, client_gone, error_response, to_json
from app.server.job import Job
from runtime.engine import Chunk
from runtime.engine.stats import Stats

Event = dict[str, object]
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class Form(Protocol):
    """How an interface words a reply."""

    last_line: bytes  # of a stream

    def begin(self) -> Iterable[Event]:
        """Events before the first text."""

    def piece(self, chunk: Chunk) -> Iterable[Event]:
        """Events for what a target pass brought."""

    def end(self, last: Chunk) -> Iterable[Event]:
        """Events after the last text."""

    def whole(self, chunks: Sequence[Chunk]) -> Event:
        """The reply in one body."""


class Reply:
    """An ASGI application that answers one request. When the client goes away, the job is cancelled."""

    def __init__(self, job: Job, form: Form, stream: bool) -> None:
        self.job, self.form, self.stream = job, form, stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Errors before the first chunk become a status; later ones, in a stream, an event."""
        async with cancelled_with_client(receive, self.job):
            try:
                await self.job.accepted()
                if self.stream:
                    await self._stream(send)
                    return
                whole = self.form.whole([chunk async for chunk in self.job.chunks()])
            except ApiError as error:
                await error_response(error)(scope, receive, send)
            else:
                await JSON(whole)(scope, receive, send)

    async def _stream(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        async for data in self._lines():
            await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _lines(self) -> AsyncIterator[bytes]:
        """The events as they go over the wire; what came meanwhile goes in one piece."""
        yield b"".join(map(as_line, self.form.begin()))
        try:
            async for chunk in self.job.chunks():
                yield b"".join(
                    map(as_line, [*self.form.piece(chunk), *(self.form.end(chunk) if chunk.finish_reason else ())])
                )
        except Exception as error:
            yield as_line(as_api_error(error).body())
        else:
            yield self.form.last_line


def as_line(event: Event) -> bytes:
    """One server-sent event, under its name where it has one."""
    name = f"event: {event['type']}\n".encode() if "type" in event else b""
    return name + b"data: " + to_json(event) + b"\n\n"


@asynccontextmanager
async def cancelled_with_client(receive: Receive, job: Job) -> AsyncIterator[None]:
    """The block ends as usual; the job ends with it, or with the connection."""

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        job.cancel()
        job.post(client_gone())  # the engine says nothing to a job that it never began

    watcher = asyncio.create_task(watch())
    try:
        yield
    finally:
        watcher.cancel()
        job.cancel()


def new_id(prefix: str) -> str:
    """A name for a reply."""
    return f"{prefix}-{secrets.token_hex(12)}"


def now() -> int:
    """Seconds since 1970, as OpenAI's `created`."""
    return int(time.time())


def usage(stats: Stats, n_reasoning: int = 0) -> dict[str, object]:
    """Tokens, in OpenAI's words; `n_reasoning` of the reply's were only thought."""
    predicted = stats.by_drafter.get("prediction", {"drafted": 0, "accepted": 0})
    return {
        "prompt_tokens": stats.prompt_n,
        "completion_tokens": stats.predicted_n,
        "total_tokens": stats.prompt_n + stats.predicted_n,
        "prompt_tokens_details": {"cached_tokens": stats.cached_n},
        "completion_tokens_details": {
            "accepted_prediction_tokens": predicted["accepted"],
            "rejected_prediction_tokens": predicted["drafted"] - predicted["accepted"],
            "reasoning_tokens": n_reasoning,
        },
    }


def timings(stats: Stats) -> dict[str, object]:
    """The reply's numbers with the rates that llama.cpp's clients read."""
    prompt_ms, predicted_ms = 1e3 * stats.prompt_seconds, 1e3 * stats.decode_seconds
    return stats.timings() | {
        "prompt_per_token_ms": round(prompt_ms / max(1, stats.prompt_n), 3),
        "prompt_per_second": round(1e3 * stats.prompt_n / prompt_ms, 2) if prompt_ms else 0.0,
        "predicted_per_token_ms": round(predicted_ms / max(1, stats.predicted_n), 3),
    }
