"""What every request passes: it gets an id and a line in the log, its path gets the usual spelling, and its Host and
Origin headers or its API key admit it, before a body is read.

Knows ASGI, and no endpoints except the open ones.
"""

from __future__ import annotations

import hmac
import logging
import re
import secrets
import sys
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.server.errors import PAGE, ApiError, error_response
from app.server.scheduled_task import ScheduledTask
from app.server.sockets import is_loopback
from app.settings import LOCAL_ORIGIN
from app.terminal import InertFormatter

log = logging.getLogger(__name__)
SANE_ID = re.compile(r"[A-Za-z0-9._:/=+-]{1,128}")
ID_HEADERS = ("x-request-id", "request-id")  # OpenAI's clients read the first, Anthropic's the second
LONGEST_PATH = 200  # characters of a path in the log
CLOSED = 499  # status of a request whose client disconnected before the answer
AGAIN = re.compile(r"^/v1(?:/v1)+(?=/)")  # the address has the prefix already and the client adds it again
# Paths of editor plugins for Azure's, Mistral's and DeepSeek's fill-in-the-middle endpoints
OTHERS = re.compile(r"^(/v1)?/(?:engines/[^/]+|fim|beta)(?=(?:/v1)?/(?:chat/)?completions$)")
OPEN = {"/health", "/v1/health"}  # for monitoring, which has no key


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


def host_name(header: str) -> str:
    """Return the name in a Host header without its port. "" if the header is invalid."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


class Guard:
    """Middleware that refuses requests: with an API key, those that lack it, else those that come from elsewhere."""

    def __init__(self, app: ASGIApp, api_key: str = "", allowed: str = LOCAL_ORIGIN) -> None:
        self.app, self.api_key, self.allowed = app, api_key, re.compile(allowed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request with a refusal, or pass it on."""
        if scope["type"] == "http" and (refusal := self.refusal(scope, Headers(scope=scope))) is not None:
            await error_response(refusal, scope["path"])(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def refusal(self, scope: Scope, headers: Mapping[str, str]) -> ApiError | None:
        """Return the reason to refuse the request, or None.

        With a key, any host name and origin is accepted, because a web page that was rebound to this address (DNS
        rebinding) has no key.
        """
        return self._without_key(scope, headers) if self.api_key else self._from_elsewhere(scope, headers)

    def _from_elsewhere(self, scope: Scope, headers: Mapping[str, str]) -> ApiError | None:
        """Check the headers that a browser sets and a page cannot change: admitted are programs and pages of this
        machine, and the allowed origins.
        """
        host = headers.get("host")
        # Browsers always send it, so a program that does not, as HTTP/1.0 allows, is not led here by a page
        if is_tcp(scope) and host is not None and not is_loopback(host_name(host)):
            return ApiError(
                403,
                "The Host header does not name this machine. Use http://127.0.0.1, or set an API key.",
                code="wrong_host",
            )
        origin = headers.get("origin")
        if origin is not None and not self.allowed.fullmatch(origin):
            return ApiError(
                403,
                "Apps and web pages from elsewhere may not use this server. Start it with --allow-origin ORIGIN (such "
                "as app://obsidian.md), name it in allow_origins of [server] in settings.toml, or set an API key.",
                code="wrong_origin",
            )
        return None

    def _without_key(self, scope: Scope, headers: Mapping[str, str]) -> ApiError | None:
        if scope["path"] in OPEN or any(map(self._is_key, given_keys(scope["path"], headers))):
            return None
        return ApiError(
            401, "The API key is missing or wrong. Send it as `Authorization: Bearer KEY` or as `x-api-key: KEY`.",
            code="invalid_api_key",
        )  # fmt: skip

    def _is_key(self, given: str) -> bool:
        """Compare in constant time. The bytes of a header arrive as Latin-1."""
        return hmac.compare_digest(given.encode("latin-1"), self.api_key.encode())


def given_keys(path: str, headers: Mapping[str, str]) -> list[str]:
    """Return the values that may be the key. The page for people accepts it as a password, for which a browser has a
    prompt.

    It does so only when the page itself is opened, since a browser also sends a password with requests made by other
    pages.
    """
    given = headers.get("authorization", "")
    scheme, _, rest = given.partition(" ")
    if scheme.lower() == "bearer":  # schemes have no case
        given = rest.strip()
    if path == PAGE and given.startswith("Basic ") and headers.get("sec-fetch-mode", "navigate") == "navigate":
        given = password(given.removeprefix("Basic "))
    return [given, headers.get("x-api-key", "")]


def password(credentials: str) -> str:
    """Return the password from base64 credentials of a name and a password. "" if they are invalid."""
    try:
        return b64decode(credentials, validate=True).decode("latin-1").partition(":")[2]
    except ValueError:
        return ""


def is_tcp(scope: Scope) -> bool:
    """Return whether the request came over TCP rather than a Unix socket."""
    server = scope.get("server")
    return server is not None and server[1] is not None


class Spellings:
    """ASGI middleware that maps other spellings of a path to the usual one."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as the wrapped application does."""
        if scope["type"] == "http" and (path := usual(scope["path"])) != scope["path"]:
            scope["path"], scope["raw_path"] = path, path.encode()
        await self.app(scope, receive, send)


def usual(path: str) -> str:
    """Return the path as the endpoints define it."""
    path = path.rstrip("/") or "/"
    return OTHERS.sub(r"\1", AGAIN.sub("/v1", path))
