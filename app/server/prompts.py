"""Prompts that are no conversation: a text, token ids, a mix of both, or a list of these.

Must not know an interface.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from app.server.bounds import Many, Text
from runtime.engine import Engine, Ids

MAX_PROMPTS = 2048  # of a request, as with OpenAI
AnyPrompt = Text | Many[int | Text]  # a list is one prompt of ids and texts


def as_prompts(value: object) -> list[object]:
    """Return a list of prompts, also for a single one. Raises PydanticCustomError for an invalid value."""
    if not isinstance(value, list):
        return [as_prompt(value)]
    if not value or any(isinstance(part, int) for part in value):
        return [value]
    return [as_prompt(part) for part in value]


def as_prompt(value: object) -> object:
    """Return a prompt as a text or a list. llama.cpp's clients may wrap a text in an object, together with images.
    Raises PydanticCustomError.
    """
    if isinstance(value, dict) and "prompt_string" in value:
        if value.get("multimodal_data"):
            raise PydanticCustomError(
                "multimodal", "Input should be text only, because images and sounds cannot be read"
            )
        value = value["prompt_string"]
    if not isinstance(value, (str, list)):
        raise PydanticCustomError("prompt_type", "Input should be a text, a list of token ids, or a list of such")
    return value


PromptInput = Text | list[int | Text] | list[Text | list[int | Text] | dict[str, Any]]
Prompts = Annotated[
    list[AnyPrompt],
    Field(min_length=1, max_length=MAX_PROMPTS, fail_fast=True),
    BeforeValidator(as_prompts, json_schema_input_type=PromptInput),
]


def prompt_ids(prompt: AnyPrompt, engine: Engine) -> Ids:
    """Return the token ids of a prompt. Texts are tokenized with control tokens recognized by name."""
    ids: list[int] = []
    for i, part in enumerate([prompt] if isinstance(prompt, str) else prompt):
        ids += engine.tokenize(part, bos=not i) if isinstance(part, str) else [part]
    return Ids(tuple(ids))


def text_of_ids(ids: Sequence[int], engine: Engine) -> str:
    """Return the text of the ids, with control tokens by name."""
    return b"".join(engine.token_bytes(token) or engine.token_text(token).encode() for token in ids).decode(
        "utf8", "replace"
    )
