"""Errors as Anthropic's clients read them."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from app.server.errors import ApiError
from app.server.wire import Event

TYPES = {
    401: "authentication_error", 403: "permission_error", 404: "not_found_error", 413: "request_too_large",
    429: "overloaded_error", 500: "api_error", 503: "overloaded_error",
}  # fmt: skip
TOO_LONG = "Prompt is too long"  # by these words, Claude Code recognizes that it must shorten the conversation


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
    return {"type": "error", "error": {"type": TYPES.get(error.status, "invalid_request_error"), "message": message}}
