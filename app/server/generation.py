"""What every request for text has, whichever interface it comes through: how tokens are sampled, and a task to make.

Must not know an interface.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from app.server.errors import ApiError
from app.server.fields import RequestModel, Whole, as_list
from app.server.task import CompletionTask
from app.server.task_response import Formatter
from runtime.engine import Engine, Grammar, Sampling

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
Bias = float | Literal[False]
Biases = dict[str, Bias] | list[tuple[int | str, Bias]]
PromptIds = tuple[int, ...]
MAX_CHOICES = 128  # as with OpenAI


def as_biases(value: object) -> object:
    """A map as pairs of a token's id, or a text for all of its tokens, and the bias; `false` forbids them."""
    if isinstance(value, dict):
        value = [(int(key) if key.lstrip("-").isdecimal() else key, bias) for key, bias in value.items()]
    if not isinstance(value, list):
        raise PydanticCustomError("bias_type", "Input should be a map of tokens to numbers, or a list of such pairs")
    if any(not isinstance(pair, (list, tuple)) or len(pair) != 2 for pair in value):
        raise PydanticCustomError("bias_type", "Input should have pairs of a token and a number")
    return [(key, -math.inf if bias is False else bias) for key, bias in value]


LogitBias = Annotated[list[tuple[int | str, float]], BeforeValidator(as_biases, json_schema_input_type=Biases)]
Stops = Annotated[list[str], BeforeValidator(as_list, json_schema_input_type=str | list[str])]


class GenerationRequest(RequestModel, ABC):
    """A request for text. Sampling settings that are absent are the pair's own."""

    model: str | None = None
    stream: bool | None = None
    temperature: float | None = None
    top_k: Whole | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: Whole | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = Field(
        None, validation_alias=AliasChoices("repetition_penalty", "repeat_penalty")
    )
    penalty_last_n: Whole | None = Field(None, validation_alias=AliasChoices("penalty_last_n", "repeat_last_n"))
    logit_bias: LogitBias | None = None
    ignore_eos: bool | None = None  # go on where the model would end
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

    def tasks(self, engine: Engine) -> list[CompletionTask]:
        """One for each prompt. Raises SettingsError and ApiError."""
        return [self.task(engine)]

    @property
    def n_choices(self) -> int:
        """Replies to each prompt."""
        return 1

    @abstractmethod
    def formatter(self, engine: Engine, prompts: Sequence[PromptIds]) -> Formatter:
        """How the replies are written, given the prompt of each."""

    def sampling(self, engine: Engine) -> Sampling:
        """How tokens are sampled. Raises SettingsError.

        A seed of -1 means none, as in llama.cpp; a top_p of 0 leaves the likeliest token, as at OpenAI.
        """
        given = {name: value for name in SETTINGS if (value := getattr(self, name)) is not None}
        if given.get("top_p") == 0:
            given["top_p"] = LIKELIEST
        seed = None if self.seed == -1 else self.seed
        return Sampling(**engine.pair.sampling_defaults | given, seed=seed, logit_bias=tuple(self._biases(engine)))

    def _biases(self, engine: Engine) -> Iterator[tuple[int, float]]:
        """What is added to the logits of which tokens."""
        for key, bias in self.logit_bias or ():
            tokens = engine.tokenize(key, special=False) if isinstance(key, str) else [key]
            yield from ((token, bias) for token in tokens)
        if self.ignore_eos:
            yield from ((token, -math.inf) for token in engine.end_tokens)
