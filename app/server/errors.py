"""Errors as clients receive them: status codes, headers, and the body in the format of the path's interface.

Must never repeat the client's input.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ValidationError

from app.server.wire import Event, JSONBody
from runtime.core.errors import ContextError, SettingsError, SlipstreamError, TemplateError

ALTERNATIVE, SENTENCE = re.compile(r",? or [^.,`]*`-[^.,]*"), re.compile(r"(?<=[.:]) [^.]*`-[^.]*\.")
REMEDIES = {
    "Use `--raw` to send the prompt as it is.": "Send the prompt as text to /v1/completions.",
    "Raise `--context`.": "Shorten it.",
}
OTHER = "invalid_request_error"  # the type of other errors
# Types of errors by status, as OpenAI and as Anthropic name them
TYPES = {
    401: ("authentication_error", "authentication_error"), 403: ("permission_error", "permission_error"),
    404: ("not_found_error", "not_found_error"), 413: (OTHER, "request_too_large"),
    429: ("rate_limit_error", "overloaded_error"), 500: ("server_error", "api_error"),
    501: ("not_supported_error", OTHER), 503: ("unavailable_error", "overloaded_error"),
}  # fmt: skip
TOO_LONG = "context_length_exceeded"
PAGE = "/"  # for people; the browser prompts for the key as a password
# Pydantic's phrases and their replacements.
PHRASES = {
    "Input should": "must",
    "List should": "must",
    "String should": "must",
    " after validation": "",
    "be an object": "be a JSON object",
}


class ErrorDetail(BaseModel):
    """Why a request is refused, and which of its fields that is about."""

    message: str
    type: str
    param: str | None
    code: str | None
    n_prompt_tokens: int | None = None  # of a prompt that is too long
    n_ctx: int | None = None


class ErrorBody(BaseModel):
    """The body of every refusal."""

    error: ErrorDetail


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


class ApiError(Exception):
    """A refusal: one clear sentence with the remedy, the HTTP status, and the request field at fault."""

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
        numbers: Mapping[str, int] = {},  # of an overflow
    ) -> None:
        super().__init__(message)
        self.status, self.param, self.code, self.retry_after = status, param, code, retry_after
        self.numbers = numbers

    def body(self) -> Event:
        """Return the error body as OpenAI's clients read it."""
        kind = "exceed_context_size_error" if self.numbers else TYPES.get(self.status, (OTHER,))[0]
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code, **self.numbers}}


def overflow(n_prompt: int, n_ctx: int, prompt_field: str | None) -> ApiError:
    """Return the error for a prompt of more tokens than the context has, in the words by which clients recognize that
    they must shorten the conversation.
    """
    most = f"This model's maximum context length is {n_ctx} tokens."
    message = f"{most} However, your prompt has {n_prompt} tokens. Shorten it."
    numbers = {"n_prompt_tokens": n_prompt, "n_ctx": n_ctx}
    return ApiError(400, message, prompt_field, TOO_LONG, numbers=numbers)


def as_api_error(error: Exception, prompt_field: str | None = None) -> ApiError:
    """Return the ApiError that a client receives for `error`. `prompt_field` is the request field with the prompt, if
    known.
    """
    if isinstance(error, ApiError):
        return error
    if isinstance(error, ContextError):
        too_long = overflow(error.n_prompt, error.n_ctx, prompt_field)
        return too_long if error.n_ctx else ApiError(400, for_clients(str(error)), prompt_field, TOO_LONG)
    if isinstance(error, TemplateError):
        return ApiError(400, for_clients(str(error)), prompt_field)
    if isinstance(error, SettingsError):
        return ApiError(400, for_clients(str(error)), setting_named_in(str(error)))
    if isinstance(error, SlipstreamError):
        return ApiError(500, for_clients(str(error)))
    return ApiError(500, "The server had an internal error. See its log.", code="internal_error")


def setting_named_in(sentence: str) -> str | None:
    """Return the request field that an engine's message is about. The message starts with its name, perhaps after an
    article.
    """
    word = sentence.removeprefix("The ").split(maxsplit=1)[0]
    form = "response_format"  # of the reply
    others = {"n_logprobs": "top_logprobs", "json_schema": form, "json_object": form, "gbnf": "grammar"}
    word = others.get(word, word)
    return word if word.islower() else None


def client_gone() -> ApiError:
    """Return the error for a reply whose client has disconnected. Nobody sees it."""
    return ApiError(499, "The client closed the connection.", code="client_gone")


def from_validation(error: ValidationError) -> ApiError:
    """Return the error for the first invalid field of a request."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    if first["type"] == "json_invalid":
        reason = first["msg"].removeprefix("Invalid JSON: ")
        return ApiError(400, f"The body is not valid JSON ({reason}). Send one JSON object in UTF-8.")
    kinds = {"str", "int", "float", "bool", "list", "tuple"}  # pydantic adds them where a value may have several types
    parts = [str(part) for part in first["loc"]]
    param = ".".join(part for part in parts if part.replace("_", "").isalnum() and part not in kinds)
    message = f"{param or 'The body'} {predicate(first['type'], first['msg'])}."
    return ApiError(400, message, param or None, first["type"])


def predicate(kind: str, message: str) -> str:
    """Return the part of the message after the field's name: pydantic's own where it is clear."""
    if kind == "missing":
        return "is missing: send it"
    for theirs, ours in PHRASES.items():
        message = message.replace(theirs, ours)
    return message


def for_clients(message: str) -> str:
    """Return a message without options of the command line, which a client cannot give."""
    for remedy, other in REMEDIES.items():
        message = message.replace(remedy, other)
    return SENTENCE.sub("", ALTERNATIVE.sub("", message))


def anthropic_body(error: ApiError) -> Event:
    """Return the body of AnthropicErrorBody. By its words, Claude Code recognizes a conversation that is too long."""
    message = f"Prompt is too long. {error}" if error.code == TOO_LONG else str(error)
    return {"type": "error", "error": {"type": TYPES.get(error.status, (OTHER, OTHER))[1], "message": message}}


def error_model(path: str) -> type[BaseModel]:
    """Return the model of the error body that the path's clients read."""
    path = path.removeprefix("/v1")
    if path.startswith("/messages"):
        return AnthropicErrorBody
    return OllamaErrorBody if path.startswith("/api/") else ErrorBody


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
