"""Refusals as clients receive them: the headers, and the body in the format of the path's interface."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from app.server.errors import ApiError, ErrorBody
from app.server.wire import Event, JSONBody

ANTHROPIC_TYPES = {
    401: "authentication_error", 403: "permission_error", 404: "not_found_error", 413: "request_too_large",
    429: "overloaded_error", 500: "api_error", 503: "overloaded_error",
}  # fmt: skip
TOO_LONG = "Prompt is too long"  # by these words, Claude Code recognizes that it must shorten the conversation
ANTHROPIC, OLLAMA = "/messages", "/api/"  # prefixes of their paths
PAGE = "/"  # for people; the browser prompts for the key as a password


class OllamaErrorBody(BaseModel):
    """The body of every refusal."""

    error: str


class AnthropicErrorDetail(BaseModel):
    """Why a request is refused."""

    type: str
    message: str


class AnthropicErrorBody(BaseModel):
    """The body of every refusal."""

    type: Literal["error"]
    error: AnthropicErrorDetail


def anthropic_body(error: ApiError) -> Event:
    """Return the body of AnthropicErrorBody."""
    message = f"{TOO_LONG}. {error}" if error.code == "context_length_exceeded" else str(error)
    return {
        "type": "error",
        "error": {"type": ANTHROPIC_TYPES.get(error.status, "invalid_request_error"), "message": message},
    }


def error_model(path: str) -> type[BaseModel]:
    """Return the model of the error body that the path's clients read."""
    path = path.removeprefix("/v1")
    if path.startswith(ANTHROPIC):
        return AnthropicErrorBody
    return OllamaErrorBody if path.startswith(OLLAMA) else ErrorBody


def error_body(error: ApiError, path: str) -> Event:
    """Return the error body in the format of the path's clients."""
    model = error_model(path)
    if model is AnthropicErrorBody:
        return anthropic_body(error)
    return {"error": str(error)} if model is OllamaErrorBody else error.body()


def error_response(error: ApiError, path: str) -> JSONBody:
    """Return the response, with Retry-After where trying again makes sense."""
    headers = {"retry-after": str(error.retry_after)} if error.retry_after else {}
    if error.status == 401:
        headers["www-authenticate"] = 'Basic realm="Slipstream", charset="UTF-8"' if path == PAGE else "Bearer"
    return JSONBody(error_body(error, path), error.status, headers)
