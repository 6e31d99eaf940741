"""Which requests are let in, by their Host and Origin headers and the API key, before a body is read.

Must not know the endpoints, but for the one that is open.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from app.server.errors import ApiError
from app.server.refusal import error_response

LOCAL_ORIGIN = r"https?://(localhost|[a-z0-9-]+\.localhost|127\.0\.0\.1|\[::1\])(:\d+)?"
OPEN = {"/health", "/v1/health"}  # for supervisors, which have no key


def is_loopback(host: str) -> bool:
    """Does this name or address lead to this machine alone?"""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def host_name(header: str) -> str:
    """The name in a Host header, without its port; "" when it is none."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


class Guard:
    """Middleware that refuses strangers.

    With a key any host name is good: a web page that was rebound to this address (DNS rebinding) has no key.
    """

    def __init__(self, app: ASGIApp, api_key: str) -> None:
        self.app, self.api_key = app, api_key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers the request with a refusal, or passes it on."""
        if scope["type"] == "http" and (refusal := self.refusal(scope, Headers(scope=scope))) is not None:
            await error_response(refusal, scope["path"])(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def refusal(self, scope: Scope, headers: Mapping[str, str]) -> ApiError | None:
        """Why the request is refused, if it is."""
        if self.api_key:
            return None if scope["path"] in OPEN or self._has_key(headers) else ApiError(
                401, "The API key is missing or wrong. Send it as `Authorization: Bearer KEY` or as `x-api-key: KEY`.",
                code="invalid_api_key",
            )  # fmt: skip
        if is_tcp(scope) and not is_loopback(host_name(headers.get("host", ""))):
            return ApiError(
                403,
                "The Host header does not name this machine. Use http://127.0.0.1, or set an API key.",
                code="wrong_host",
            )
        origin = headers.get("origin")
        if origin is not None and not re.fullmatch(LOCAL_ORIGIN, origin):
            return ApiError(
                403,
                "Web pages from elsewhere may not use this server. Start it with an API key to allow them.",
                code="wrong_origin",
            )
        return None

    def _has_key(self, headers: Mapping[str, str]) -> bool:
        """Compares in constant time; a header's bytes come as Latin-1."""
        given = headers.get("authorization", "").removeprefix("Bearer "), headers.get("x-api-key", "")
        return any(hmac.compare_digest(key.encode("latin-1"), self.api_key.encode()) for key in given)


def is_tcp(scope: Scope) -> bool:
    """Did the request come over the network, and not over a Unix socket?"""
    server = scope.get("server")
    return server is not None and server[1] is not None
