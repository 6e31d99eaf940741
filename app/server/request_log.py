"""Every request's id, and one line about each that has been answered: never what was said.

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

log = logging.getLogger(__name__)
SANE_ID = re.compile(r"[A-Za-z0-9._:/=+-]{1,128}")
ID_HEADERS = ("x-request-id", "request-id")  # OpenAI's clients read the first, Anthropic's the second
LONGEST_PATH = 200  # characters that are written
CLOSED = 499  # the client left before it was answered


class RequestLog:
    """An ASGI application that answers with another one, gives each answer an id and writes down that it was given.

    If `verbose`, also what was changed in a conversation, so that the model's template takes it.
    """

    def __init__(self, app: ASGIApp, verbose: bool = False) -> None:
        self.app, self.verbose = app, verbose

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers as the application does."""
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
    """The request's own id, where it is one that can be written down; else a new one."""
    given = Headers(scope=scope).get("x-request-id", "")
    return given if SANE_ID.fullmatch(given) else f"req_{secrets.token_hex(12)}"


def tasks_of(scope: Scope) -> list[ScheduledTask]:
    """The tasks that the request came to; whoever answers it adds them."""
    found: list[ScheduledTask] = scope.setdefault("state", {}).setdefault("tasks", [])
    return found


def asked(scope: Scope) -> str:
    """Who asked and for what, as uvicorn writes it; a query may say more than should be kept."""
    client = "{}:{}".format(*scope["client"]) if scope.get("client") else "socket"
    path = quote(scope["path"])[:LONGEST_PATH]
    return f'{client} - "{scope["method"]} {path} HTTP/{scope["http_version"]}"'


def answered(status: int, tasks: Sequence[ScheduledTask], seconds: float, request_id: str) -> str:
    """How it went: the status, tokens of the prompt and of the reply and those not read anew, milliseconds, the id."""
    counts = [(task.n_prompt, task.counts.n_predicted, task.counts.n_cached) for task in tasks]
    n_prompt, n_predicted, n_cached = map(sum, zip(*counts, strict=True)) if counts else (0, 0, 0)
    if not n_predicted and any(task.counts.has_client_left for task in tasks):
        status = CLOSED  # a stream that waits for its first token has been given a status already
    tokens = f", {n_prompt}+{n_predicted} tokens" if counts else ""
    tokens += f" ({n_cached} cached)" if n_cached else ""
    return f"{status}{tokens}, {1e3 * seconds:.0f} ms, {request_id}"


def fitted(tasks: Iterable[ScheduledTask]) -> str:
    """What was changed in the conversations, if anything was."""
    changes = "; ".join(dict.fromkeys(change for task in tasks for change in task.changes))
    return f", fitted: {changes}" if changes else ""


@contextmanager
def on_stderr() -> Iterator[None]:
    """Has the lines written on standard error until the block ends."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("slipstream: %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(logging.NOTSET)
