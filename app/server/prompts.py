"""Prompts that are no conversation, as clients send them: a text, token ids, both in one, or a list of such.

Must not know an interface.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from runtime.engine import Engine, Ids

MAX_PROMPTS = 2048  # of a request, as with OpenAI
AnyPrompt = str | list[int | str]  # a list is one prompt: ids, and texts between them


def as_prompts(value: object) -> list[object]:
    """One prompt as a list of one. Raises PydanticCustomError for what is none."""
    if not isinstance(value, list):
        return [as_prompt(value)]
    if not value or any(isinstance(part, int) for part in value):
        return [value]
    return [as_prompt(part) for part in value]


def as_prompt(value: object) -> object:
    """A prompt as text or as a list; llama.cpp's clients may wrap a text in an object, together with images."""
    if isinstance(value, dict) and "prompt_string" in value:
        if value.get("multimodal_data"):
            raise PydanticCustomError("multimodal", "Input should be text alone, as images and sounds cannot be read")
        value = value["prompt_string"]
    if not isinstance(value, (str, list)):
        raise PydanticCustomError("prompt_type", "Input should be a text, a list of token ids, or a list of such")
    return value


PromptInput = str | list[int | str] | list[str | list[int | str] | dict[str, Any]]
Prompts = Annotated[
    list[AnyPrompt],
    Field(min_length=1, max_length=MAX_PROMPTS),
    BeforeValidator(as_prompts, json_schema_input_type=PromptInput),
]


def prompt_ids(prompt: AnyPrompt, engine: Engine) -> Ids:
    """The ids that were sent, and those of texts, in which control tokens may be named."""
    ids: list[int] = []
    for i, part in enumerate([prompt] if isinstance(prompt, str) else prompt):
        ids += engine.tokenize(part, bos=not i) if isinstance(part, str) else [part]
    return Ids(tuple(ids))


def text_of_ids(ids: Sequence[int], engine: Engine) -> str:
    """The text that the ids stand for; control tokens by their names."""
    return b"".join(engine.token_bytes(token) or engine.token_text(token).encode() for token in ids).decode(
        "utf8", "replace"
    )
