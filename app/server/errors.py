"""Errors as clients receive them: status codes and OpenAI's error body.

Must never repeat the client's input.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pydantic import BaseModel, ValidationError

from app.server.wire import Event
from runtime.core.errors import ContextError, SettingsError, SlipstreamError, TemplateError

ALTERNATIVE, SENTENCE = re.compile(r",? or [^.,`]*`-[^.,]*"), re.compile(r"(?<=[.:]) [^.]*`-[^.]*\.")
REMEDIES = {
    "Use `--raw` to send the prompt as it is.": "Send the prompt as text to /v1/completions.",
    "Raise `--context`.": "Shorten it.",
}
TYPES = {
    401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error",
    500: "server_error", 501: "not_supported_error", 503: "unavailable_error",
}  # fmt: skip
TOO_LONG = "context_length_exceeded"
# Engine setting to request field, where the names differ.
FIELDS = {
    "n_logprobs": "top_logprobs",
    "json_schema": "response_format",
    "json_object": "response_format",
    "gbnf": "grammar",
}
# Pydantic adds these to the location of a value that may have several types.
TYPE_NAMES = {"str", "int", "float", "bool", "list", "tuple"}
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
        kind = "exceed_context_size_error" if self.numbers else TYPES.get(self.status, "invalid_request_error")
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
    word = FIELDS.get(word, word)
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
    parts = [str(part) for part in first["loc"]]
    param = ".".join(part for part in parts if part.replace("_", "").isalnum() and part not in TYPE_NAMES)
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
