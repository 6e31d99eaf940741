"""What a client is told when a request cannot be answered: status codes and OpenAI's error body.

Never repeats what the client sent.
"""

from __future__ import annotations

import json

from pydantic import ValidationError
from starlette.responses import Response

from runtime.core.errors import ContextError, SettingsError, SlipstreamError, TemplateError

KINDS = {
    401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error",
    500: "server_error", 503: "unavailable_error",
}  # fmt: skip
# A setting's name in the engine, where the request calls it otherwise.
FIELDS = {"n_logprobs": "top_logprobs", "json_schema": "response_format", "json_object": "response_format"}
TYPE_NAMES = {
    "str",
    "int",
    "float",
    "bool",
    "list",
    "tuple",
}  # pydantic adds these to the place of a value that may have several types

SENTENCES = {
    "Input should": "must",
    "List should": "must",
    "String should": "must",
    " after validation": "",
    "be an object": "be a JSON object",
}


class ApiError(Exception):
    """A refusal: one clear sentence with the remedy, the HTTP status, and which field of the request it is about."""

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.param, self.code, self.retry_after = status, param, code, retry_after

    def body(self) -> dict[str, object]:
        """As OpenAI's clients read it."""
        kind = KINDS.get(self.status, "invalid_request_error")
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}


def as_api_error(error: Exception, text_field: str | None = None) -> ApiError:
    """What a client is told about `error`; `text_field` is where its request had the text, if that is known."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, ContextError):
        return ApiError(400, str(error), text_field, "context_length_exceeded")
    if isinstance(error, TemplateError):
        return ApiError(400, str(error), text_field)
    if isinstance(error, SettingsError):
        return ApiError(400, str(error), setting_named_in(str(error)))
    if isinstance(error, SlipstreamError):
        return ApiError(500, str(error))
    return ApiError(500, "Something went wrong in the server; its log says what.", code="internal_error")


def setting_named_in(sentence: str) -> str | None:
    """The engine's sentences about a setting begin with its name, perhaps after an article."""
    word = sentence.removeprefix("The ").split(maxsplit=1)[0]
    word = FIELDS.get(word, word)
    return word if word.islower() else None


def client_gone() -> ApiError:
    """For the reader of a reply whose client went away; nobody sees it."""
    return ApiError(499, "The client closed the connection.", code="client_gone")


def from_validation(error: ValidationError) -> ApiError:
    """The first thing that is wrong with a request, naming its field."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    if first["type"] == "json_invalid":
        return ApiError(
            400,
            f"The body is not valid JSON ({first['msg'].removeprefix('Invalid JSON: ')}). Send one JSON object in "
            "UTF-8.",
        )
    parts = [str(part) for part in first["loc"]]
    param = ".".join(part for part in parts if part.replace("_", "").isalnum() and part not in TYPE_NAMES)
    return ApiError(
        400, f"{param or 'The body'} {sentence(first['type'], first['msg'])}.", param or None, first["type"]
    )


def sentence(kind: str, words: str) -> str:
    """What is wrong, after the field's name; pydantic's words where they are clear."""
    if kind == "missing":
        return "is missing: send it"
    for theirs, ours in SENTENCES.items():
        words = words.replace(theirs, ours)
    return words


def to_json(value: object) -> bytes:
    """Compact JSON in UTF-8; llama.vim looks for `"content":"` without a space."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf8", "replace")


class JSON(Response):
    """A value as compact JSON."""

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        """The body's bytes."""
        return to_json(content)


def error_response(error: ApiError) -> JSON:
    """With Retry-After where trying again makes sense."""
    headers = {"retry-after": str(error.retry_after)} if error.retry_after else {}
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    return JSON(error.body(), error.status, headers)
