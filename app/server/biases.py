"""`logit_bias` of a request: a map or a list, checked and bounded before anything of it is tokenized."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

Bias = float | Literal[False]
Biases = dict[str, Bias] | list[tuple[int | str, Bias]]
MAX_BIASES, MAX_BIAS_TEXTS = 2**18, 300  # of one request: words of the largest vocabularies; keys that are texts
MAX_BIAS_TEXT, DIGITS, ID_BITS = 300, 20, 31  # characters of such a text; digits and bits of a token id


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
