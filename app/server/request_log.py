"""Gives every request an id and logs one line for each answer, never its text.

Knows ASGI; must not know the endpoints.
"""

from __future__ import annotations

import logging
import re
import secrets
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.server.scheduled_task import ScheduledTask
from app.terminal import InertFormatter

log = logging.getLogger(__name__)
SANE_ID = re.compile(r"[A-Za-z0-9._:/=+-]{1,128}")
ID_HEADERS = ("x-request-id", "request-id")  # OpenAI's clients read the first, Anthropic's the second
LONGEST_PATH = 200  # characters of a path in the log
CLOSED = 499  # status of a request whose client disconnected before the answer


class RequestLog:
    """ASGI middleware that gives each answer an id and logs it.

    With `verbose`, the line includes the changes to a conversation that the chat template required.
    """

    def __init__(self, app: ASGIApp, verbose: bool = False) -> None:
        self.app, self.verbose = app, verbose

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as the wrapped application does."""
        began, request_id, status = perf_counter(), id_of(scope), CLOSED

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message).update(dict.fromkeys(ID_HEADERS, request_id))
            await send(message)

        try:
            await self.app(scope, receive, send_with_id)
        finally:
            tasks = tasks_of(scope)
            line = answered(status, tasks, perf_counter() - began, request_id)
            log.info("%s %s%s", asked(scope), line, fitted(tasks) if self.verbose else "")


def id_of(scope: Scope) -> str:
    """Return the request's own id if it is safe to log, else a new one."""
    given = Headers(scope=scope).get("x-request-id", "")
    return given if SANE_ID.fullmatch(given) else f"req_{secrets.token_hex(12)}"


def tasks_of(scope: Scope) -> list[ScheduledTask]:
    """Return the request's list of tasks. The endpoint that answers it adds them."""
    found: list[ScheduledTask] = scope.setdefault("state", {}).setdefault("tasks", [])
    return found


def asked(scope: Scope) -> str:
    """Return the client and the request line as uvicorn writes them, without the query, which may be private."""
    client = "{}:{}".format(*scope["client"]) if scope.get("client") else "socket"
    path = quote(scope["path"])[:LONGEST_PATH]
    return f'{client} - "{scope["method"]} {path} HTTP/{scope["http_version"]}"'


def answered(status: int, tasks: Sequence[ScheduledTask], seconds: float, request_id: str) -> str:
    """Return the status, the numbers of prompt, reply and cached tokens, the milliseconds and the id as text."""
    counts = [(task.n_prompt, task.counts.n_predicted, task.counts.n_cached) for task in tasks]
    n_prompt, n_predicted, n_cached = map(sum, zip(*counts, strict=True)) if counts else (0, 0, 0)
    if not n_predicted and any(task.counts.has_client_left for task in tasks):
        status = CLOSED  # a stream that waits for its first token has a status already
    tokens = f", {n_prompt}+{n_predicted} tokens" if counts else ""
    tokens += f" ({n_cached} cached)" if n_cached else ""
    return f"{status}{tokens}, {1e3 * seconds:.0f} ms, {request_id}"


def fitted(tasks: Iterable[ScheduledTask]) -> str:
    """Return the changes to the conversations as text, or ""."""
    changes = "; ".join(dict.fromkeys(change for task in tasks for change in task.changes))
    return f", fitted: {changes}" if changes else ""


@contextmanager
def on_stderr() -> Iterator[None]:
    """Write the log lines to standard error until the block ends."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(InertFormatter("slipstream: %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(logging.NOTSET)
