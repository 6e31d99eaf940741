"""Errors as Ollama's clients read them."""

from __future__ import annotations

from pydantic import BaseModel

from app.server.errors import ApiError
from app.server.wire import Event


class OllamaErrorBody(BaseModel):
    """The body of every refusal."""

    error: str


def ollama_error(error: ApiError) -> Event:
    """Return the body of OllamaErrorBody."""
    return {"error": str(error)}
