"""Other spellings of the endpoints' paths, as clients build them from the address that they are given.

Must not know an endpoint.
"""

from __future__ import annotations

import re

from starlette.types import ASGIApp, Receive, Scope, Send

AGAIN = re.compile(r"^/v1(?:/v1)+(?=/)")  # the prefix is part of the address, and the client adds it once more
# Editors' plugins for Azure's, Mistral's and DeepSeek's form of filling in the middle
OTHERS = re.compile(r"^(/v1)?/(?:engines/[^/]+|fim|beta)(?=(?:/v1)?/(?:chat/)?completions$)")


class Spellings:
    """An ASGI application that answers with another one, whose paths may also be spelled otherwise."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers as the application does."""
        if scope["type"] == "http" and (path := usual(scope["path"])) != scope["path"]:
            scope["path"], scope["raw_path"] = path, path.encode()
        await self.app(scope, receive, send)


def usual(path: str) -> str:
    """Return the path as the endpoints have it."""
    path = path.rstrip("/") or "/"
    return OTHERS.sub(r"\1", AGAIN.sub("/v1", path))
