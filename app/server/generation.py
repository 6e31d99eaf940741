"""What every request for text has, whichever interface it comes through: how tokens are sampled, and a task to make.

Must not know an interface.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BeforeValidator, Field

from app.server.errors import ApiError
from app.server.fields import RequestModel, as_list
from app.server.task import CompletionTask
from app.server.task_response import Formatter
from runtime.engine import Engine, Grammar, Sampling
from runtime.models.registry import Pair

SETTINGS = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "penalty_last_n",
)
LIKELIEST = 1e-9  # a top_p below any token's probability that matters
Biases = dict[str, float | Literal[False]] | list[tuple[int, float | Literal[False]]]


def as_bias(value: object) -> object:
    """A list of [token, bias] pairs as a map; `false` forbids a token."""
    if isinstance(value, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in value):
        value = {str(token): bias for token, bias in value}
    if not isinstance(value, dict):
        return value
    return {token: -math.inf if bias is False else bias for token, bias in value.items()}


LogitBias = Annotated[
    dict[Annotated[int, Field(strict=False)], float], BeforeValidator(as_bias, json_schema_input_type=Biases)
]
Stops = Annotated[list[str], BeforeValidator(as_list, json_schema_input_type=str | list[str])]


class GenerationRequest(RequestModel, ABC):
    """A request for text. Sampling settings that are absent are the pair's own."""

    model: str | None = None
    stream: bool | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = Field(
        None, validation_alias=AliasChoices("repetition_penalty", "repeat_penalty")
    )
    penalty_last_n: int | None = Field(None, validation_alias=AliasChoices("penalty_last_n", "repeat_last_n"))
    logit_bias: LogitBias | None = None
    stop: Stops | None = None
    json_schema: dict[str, Any] | None = None
    grammar: str | None = None  # in GBNF

    def constraint(self) -> Grammar | None:
        """What the reply must look like, as llama.cpp's clients say it. Raises ApiError where they say it twice."""
        if self.grammar and self.json_schema is not None:
            raise ApiError(400, "grammar and json_schema exclude each other. Leave one of them out.", "grammar")
        if self.grammar:
            return Grammar("gbnf", self.grammar)
        return None if self.json_schema is None else Grammar("json_schema", json.dumps(self.json_schema))

    @abstractmethod
    def task(self, engine: Engine) -> CompletionTask:
        """What the engine is to do. Raises SettingsError and ApiError."""

    @abstractmethod
    def formatter(self, engine: Engine, n_prompt: int) -> Formatter:
        """How the reply to a prompt of so many tokens is written."""

    def sampling(self, pair: Pair) -> Sampling:
        """How tokens are sampled. Raises SettingsError.

        A seed of -1 means none, as in llama.cpp; a top_p of 0 leaves the likeliest token, as at OpenAI.
        """
        given = {name: value for name in SETTINGS if (value := getattr(self, name)) is not None}
        if given.get("top_p") == 0:
            given["top_p"] = LIKELIEST
        seed = None if self.seed == -1 else self.seed
        return Sampling(**pair.sampling_defaults | given, seed=seed, logit_bias=tuple((self.logit_bias or {}).items()))
