"""The request fields and methods that all interfaces share for text generation: sampling settings, and the resulting
task.

Must not know an interface.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar

from pydantic import AliasChoices, BeforeValidator, Field

from app.server.bounds import Few, Object, Source
from app.server.errors import ApiError
from app.server.fields import RequestModel, Whole, as_list
from app.server.prompts import LogitBias
from app.server.task import CompletionTask, PromptIds
from app.server.task_response import Formatter
from runtime.core.errors import SettingsError
from runtime.engine import Engine, Grammar, Sampling
from runtime.engine.engine import Ask

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
MAX_CHOICES = 128  # as with OpenAI


Stops = Annotated[Few[str], BeforeValidator(as_list, json_schema_input_type=str | list[str])]


class GenerationRequest(RequestModel, ABC):
    """A request for text. Sampling settings that are absent are the pair's own."""

    prompt_field: ClassVar[str] = "prompt"  # that holds the prompt, named in errors
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
    ignore_eos: bool | None = None  # continue past the model's end-of-turn token
    stop: Stops | None = None
    json_schema: Object | None = None
    grammar: Source | None = None  # in GBNF

    def constraint(self) -> Grammar | None:
        """Return the grammar from llama.cpp's fields. Raises ApiError if both are given."""
        if self.grammar and self.json_schema is not None:
            raise ApiError(400, "grammar and json_schema exclude each other. Leave one of them out.", "grammar")
        if self.grammar:
            return Grammar("gbnf", self.grammar)
        return None if self.json_schema is None else Grammar("json_schema", json.dumps(self.json_schema))

    @abstractmethod
    def task(self, engine: Engine, i: int = 0) -> CompletionTask:
        """Return the task for prompt `i`. Raises SettingsError, TemplateError and ApiError."""

    def following(self, engine: Engine, reply: str) -> Ask | None:
        """Return what the engine may read ahead of the request that is likely to follow a reply; None if that is not
        known. Raises ApiError, SettingsError and TemplateError.
        """
        return None

    @property
    def n_prompts(self) -> int:
        """The number of prompts."""
        return 1

    @property
    def n_choices(self) -> int:
        """The number of replies to each prompt."""
        return 1

    @abstractmethod
    def formatter(self, engine: Engine, prompts: Sequence[PromptIds]) -> Formatter:
        """Return the formatter for the replies, given the prompt of each."""

    def sampling(self, engine: Engine) -> Sampling:
        """Return the sampling settings. Raises SettingsError.

        A seed of -1 means none, as in llama.cpp. A top_p of 0 keeps only the likeliest token, as at OpenAI.
        """
        given = {name: value for name in SETTINGS if (value := getattr(self, name)) is not None}
        if given.get("top_p") == 0:
            given["top_p"] = LIKELIEST
        seed = None if self.seed == -1 else self.seed
        return Sampling(**engine.pair.sampling_defaults | given, seed=seed, logit_bias=tuple(self._biases(engine)))

    def _biases(self, engine: Engine) -> Iterator[tuple[int, float]]:
        """Yield token ids and the bias to add to their logits."""
        if len(biases := self.logit_bias or ()) > (n_vocab := engine.facts.n_vocab) > 0:
            raise SettingsError(f"logit_bias has {len(biases)} entries for {n_vocab} tokens of the model. Send fewer.")
        for key, bias in biases:
            tokens = engine.tokenize(key, special=False) if isinstance(key, str) else [key]
            yield from ((token, bias) for token in tokens)
        if self.ignore_eos:
            yield from ((token, -math.inf) for token in engine.end_tokens)
