"""Sends a refusal: headers, and the body in the format of the path's interface."""

from __future__ import annotations

from app.server.anthropic.errors import anthropic_body
from app.server.errors import ApiError
from app.server.ollama.errors import ollama_error
from app.server.wire import Event, JSONBody

ANTHROPIC, OLLAMA = "/messages", "/api/"  # prefixes of their paths
PAGE = "/"  # for people; the browser prompts for the key as a password


def error_body(error: ApiError, path: str) -> Event:
    """Return the error body in the format of the path's clients."""
    path = path.removeprefix("/v1")
    if path.startswith(ANTHROPIC):
        return anthropic_body(error)
    return ollama_error(error) if path.startswith(OLLAMA) else error.body()


def error_response(error: ApiError, path: str) -> JSONBody:
    """Return the response, with Retry-After where trying again makes sense."""
    headers = {"retry-after": str(error.retry_after)} if error.retry_after else {}
    if error.status == 401:
        headers["www-authenticate"] = 'Basic realm="Slipstream", charset="UTF-8"' if path == PAGE else "Bearer"
    return JSONBody(error_body(error, path), error.status, headers)
