"""Fields that name tokens by ids or by texts: prompts that are no conversation, and `logit_bias`.

Must not know an interface.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from app.server.bounds import Many, Text
from runtime.engine import Engine, Ids

MAX_PROMPTS = 2048  # of a request, as with OpenAI
AnyPrompt = Text | Many[int | Text]  # a list is one prompt of ids and texts
MAX_BIASES, MAX_BIAS_TEXTS = 2**18, 300  # of one request: words of the largest vocabularies; keys that are texts
MAX_BIAS_TEXT, DIGITS, ID_BITS = 300, 20, 31  # characters of such a text; digits and bits of a token id


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


Bias = float | Literal[False]
Biases = dict[str, Bias] | list[tuple[int | str, Bias]]


def as_biases(value: object) -> object:
    """Return a map as pairs of a key and a bias. A key is a token id, or a text whose tokens all get the bias; `false`
    forbids them.
    """
    if not isinstance(value, dict | list):
        raise PydanticCustomError("bias_type", "Input should be a map of tokens to numbers, or a list of such pairs")
    if len(value) > MAX_BIASES:
        raise PydanticCustomError("bias_length", f"Input should have at most {MAX_BIASES} entries")
    if isinstance(value, dict):
        value = [(as_token(key), bias) for key, bias in value.items()]
    if any(not isinstance(pair, (list, tuple)) or len(pair) != 2 for pair in value):
        raise PydanticCustomError("bias_type", "Input should have pairs of a token and a number")
    texts = [key for key, _ in value if isinstance(key, str)]
    if len(texts) > MAX_BIAS_TEXTS or any(len(text) > MAX_BIAS_TEXT for text in texts):
        most = f"{MAX_BIAS_TEXTS} texts of at most {MAX_BIAS_TEXT} characters"
        raise PydanticCustomError("bias_length", f"Input should have at most {most} among its keys")
    if any(isinstance(key, int) and key.bit_length() > ID_BITS for key, _ in value):
        raise PydanticCustomError("bias_type", "Input should name tokens by their ids")
    return [(key, -math.inf if bias is False else bias) for key, bias in value]


def as_token(key: str) -> int | str:
    """Return the token id that a key of a map stands for, or the key as a text."""
    return int(key) if len(key) < DIGITS and key.lstrip("-").isdecimal() and key.rfind("-") <= 0 else key


LogitBias = Annotated[
    list[tuple[int | Annotated[str, Field(max_length=MAX_BIAS_TEXT)], float]],
    Field(max_length=MAX_BIASES, fail_fast=True),
    BeforeValidator(as_biases, json_schema_input_type=Biases),
]
