"""Admits requests by their Host and Origin headers and by the API key, before a body is read.

Knows no endpoints except the open ones.
"""

from __future__ import annotations

import hmac
import re
from abc import ABC, abstractmethod
from base64 import b64decode
from collections.abc import Mapping
from ipaddress import IPv6Address, ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from app.origins import LOCAL_ORIGIN
from app.server.errors import ApiError
from app.server.refusal import PAGE, error_response

OPEN = {"/health", "/v1/health"}  # for monitoring, which has no key


def is_loopback(host: str) -> bool:
    """Return whether this name or address leads to this machine alone. A name may end with a dot, as complete ones do
    in DNS.
    """
    host = host.removesuffix(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


def host_name(header: str) -> str:
    """Return the name in a Host header without its port. "" if the header is invalid."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


class Guard(ABC):
    """Middleware that refuses requests."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request with a refusal, or pass it on."""
        if scope["type"] == "http" and (refusal := self.refusal(scope, Headers(scope=scope))) is not None:
            await error_response(refusal, scope["path"])(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    @abstractmethod
    def refusal(self, scope: Scope, headers: Mapping[str, str]) -> ApiError | None:
        """Return the reason to refuse the request, or None."""


class OriginGuard(Guard):
    """Admits programs and pages of this machine, and the origins that a regular expression allows."""

    def __init__(self, app: ASGIApp, allowed: str = LOCAL_ORIGIN) -> None:
        super().__init__(app)
        self.allowed = re.compile(allowed)

    def refusal(self, scope: Scope, headers: Mapping[str, str]) -> ApiError | None:
        """Check the headers that a browser sets and a page cannot change."""
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


class KeyGuard(Guard):
    """Admits requests with the key.

    Any host name and origin is accepted then, because a web page that was rebound to this address (DNS rebinding) has
    no key.
    """

    def __init__(self, app: ASGIApp, api_key: str) -> None:
        super().__init__(app)
        self.api_key = api_key

    def refusal(self, scope: Scope, headers: Mapping[str, str]) -> ApiError | None:
        """Check the key alone."""
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
