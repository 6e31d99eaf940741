"""/messages/count_tokens: the number of tokens of a conversation."""

from __future__ import annotations

from pydantic import BaseModel

from app.server.anthropic.conversation import AnthropicConversation
from app.server.anthropic.errors import AnthropicErrorBody
from app.server.endpoint import query_endpoint
from app.server.wire import Event
from runtime.engine import Engine


class CountTokensRequest(AnthropicConversation):
    """The body of a request to /messages/count_tokens."""

    model: str | None = None


class TokenCount(BaseModel):
    """The body that answers /messages/count_tokens."""

    input_tokens: int


def count_tokens(request: CountTokensRequest, engine: Engine) -> Event:
    """Return the body of TokenCount. Raises ApiError and TemplateError."""
    return {"input_tokens": len(request.chat().task(engine).tokenized(engine).prompt_ids)}


ENDPOINT = query_endpoint(
    "/messages/count_tokens", CountTokensRequest, TokenCount, count_tokens, refusal=AnthropicErrorBody
)
