"""Accepts other spellings of the endpoints' paths, which clients build from the configured base address.

Must not know an endpoint.
"""

from __future__ import annotations

import re

from starlette.types import ASGIApp, Receive, Scope, Send

AGAIN = re.compile(r"^/v1(?:/v1)+(?=/)")  # the address has the prefix already and the client adds it again
# Paths of editor plugins for Azure's, Mistral's and DeepSeek's fill-in-the-middle endpoints
OTHERS = re.compile(r"^(/v1)?/(?:engines/[^/]+|fim|beta)(?=(?:/v1)?/(?:chat/)?completions$)")


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
