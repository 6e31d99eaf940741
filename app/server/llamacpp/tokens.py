"""/tokenize and /detokenize: text as tokens, and back. /apply-template: a conversation as the prompt text."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from app.server.endpoint import query_endpoint
from app.server.errors import ApiError
from app.server.fields import MAX_ENCODED, Many, RequestModel, Whole
from app.server.openai.conversation import ConversationRequest
from app.server.wire import Event
from runtime.engine import Engine


class TokenizeRequest(RequestModel):
    """The body of a request to /tokenize."""

    content: Annotated[str, Field(max_length=MAX_ENCODED)]
    add_special: bool | None = None
    parse_special: bool | None = None
    with_pieces: bool | None = None


class TokenPiece(BaseModel):
    """A token with its text, or with its bytes where they are part of a character."""

    id: int
    piece: str | list[int]


class TokenizeResponse(BaseModel):
    """The body that answers /tokenize: ids, with their pieces if asked."""

    tokens: list[int] | list[TokenPiece]


def tokenize(request: TokenizeRequest, engine: Engine) -> Event:
    """Return the body of TokenizeResponse."""
    ids = engine.tokenize(request.content, special=request.parse_special is not False, bos=bool(request.add_special))
    return {"tokens": [{"id": token, "piece": piece(engine, token)} for token in ids] if request.with_pieces else ids}


def piece(engine: Engine, token: int) -> str | list[int]:
    """Return the token's text, or its bytes where they are part of a character."""
    try:
        return engine.token_bytes(token).decode("utf8") or engine.token_text(token)
    except UnicodeDecodeError:
        return list(engine.token_bytes(token))


class DetokenizeRequest(RequestModel):
    """The body of a request to /detokenize."""

    tokens: Many[Annotated[Whole, Field(ge=0)]]


class DetokenizeResponse(BaseModel):
    """The body that answers /detokenize."""

    content: str


def detokenize(request: DetokenizeRequest, engine: Engine) -> Event:
    """Return the body of DetokenizeResponse. Raises ApiError for a token outside the vocabulary."""
    if any(token >= engine.facts.n_vocab for token in request.tokens):
        raise ApiError(400, f"tokens: the model has {engine.facts.n_vocab} tokens. Use ids below that.", "tokens")
    return {"content": b"".join(map(engine.token_bytes, request.tokens)).decode("utf8", "replace")}


class TemplateRequest(ConversationRequest):
    """The body of a request to /apply-template: the fields of a chat that determine the prompt."""


class TemplateResponse(BaseModel):
    """The body that answers /apply-template."""

    prompt: str


def apply_template(request: TemplateRequest, engine: Engine) -> Event:
    """Return the body of TemplateResponse. Raises ApiError and TemplateError."""
    return {"prompt": request.written(engine).text}


TOKENIZE = query_endpoint("/tokenize", TokenizeRequest, TokenizeResponse, tokenize)
DETOKENIZE = query_endpoint("/detokenize", DetokenizeRequest, DetokenizeResponse, detokenize)
TEMPLATE = query_endpoint("/apply-template", TemplateRequest, TemplateResponse, apply_template)
