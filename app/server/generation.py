"""The request fields that the interfaces share for text generation: sampling settings, `logit_bias`, and prompts that
are no conversation. They result in a task.

Must not know an interface.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AliasChoices, BeforeValidator, Field, ValidationInfo, WrapValidator
from pydantic_core import PydanticCustomError

from app.server.errors import ApiError
from app.server.fields import Few, Many, Object, RequestModel, Source, Text, Whole, as_list, sees_images
from app.server.lora import AdapterScales, reply_name
from app.server.pictures import MarkedPrompt, marked
from app.server.task import CompletionTask, PromptIds
from app.server.task_response import Formatter
from runtime.core.errors import SettingsError
from runtime.engine import SAMPLING_NAMES, Engine, Grammar, Ids, Prompt, Rendered, Sampling, sampling_of, with_images
from runtime.engine.engine import Ask

MAX_PROMPTS = 2048  # of a request, as with OpenAI
AnyPrompt = Text | Many[int | Text]  # a list is one prompt of ids and texts
MAX_BIASES, MAX_BIAS_TEXTS = 2**18, 300  # of one request: words of the largest vocabularies; keys that are texts
MAX_BIAS_TEXT, DIGITS, ID_BITS = 300, 20, 31  # characters of such a text; digits and bits of a token id
LIKELIEST = 1e-9  # a top_p below any token's probability that matters
MAX_CHOICES = 128  # as with OpenAI


def as_prompts(value: object, info: ValidationInfo) -> list[object]:
    """Return a list of prompts, also for a single one. Raises PydanticCustomError for an invalid value."""
    if not isinstance(value, list):
        return [as_prompt(value, info)]
    if not value or any(isinstance(part, int) for part in value):
        return [value]
    return [as_prompt(part, info) for part in value]


def as_prompt(value: object, info: ValidationInfo) -> object:
    """Return a prompt as a text or a list. llama.cpp's clients may wrap a text in an object, together with images.
    Raises PydanticCustomError.
    """
    if isinstance(value, dict) and "prompt_string" in value:
        if value.get("multimodal_data") and sees_images(info):
            return marked(value["prompt_string"], value["multimodal_data"])
        if value.get("multimodal_data"):
            raise PydanticCustomError(
                "multimodal", "Input should be text only, because images and sounds cannot be read"
            )
        value = value["prompt_string"]
    if not isinstance(value, (str, list)):
        raise PydanticCustomError("prompt_type", "Input should be a text, a list of token ids, or a list of such")
    return value


def as_it_is(value: object, check: Callable[[object], Any]) -> Any:
    """Return a prompt with images as it is, as that has been read; check any other."""
    return value if isinstance(value, MarkedPrompt) else check(value)


PromptInput = Text | list[int | Text] | list[Text | list[int | Text] | dict[str, Any]]
Prompts = Annotated[
    list[Annotated[AnyPrompt, WrapValidator(as_it_is)]],
    Field(min_length=1, max_length=MAX_PROMPTS, fail_fast=True),
    BeforeValidator(as_prompts, json_schema_input_type=PromptInput),
]


def pictured(prompt: AnyPrompt | MarkedPrompt, engine: Engine) -> Prompt:
    """Return a prompt as token ids, or one with images, with control tokens recognized by name."""
    if not isinstance(prompt, MarkedPrompt):
        return prompt_ids(prompt, engine)
    return with_images(Rendered(prompt.text), [image.image for image in prompt.images])


def prompt_ids(prompt: AnyPrompt, engine: Engine) -> Ids:
    """Return the token ids of a prompt. Texts are tokenized with control tokens recognized by name."""
    ids: list[int] = []
    for i, part in enumerate([prompt] if isinstance(prompt, str) else prompt):
        ids += engine.tokenize(part, bos=not i) if isinstance(part, str) else [part]
    return Ids(tuple(ids))


def text_of_ids(ids: Sequence[int], engine: Engine) -> str:
    """Return the text of the ids, with control tokens by name, and without images."""
    texts = (engine.token_bytes(token) or engine.token_text(token).encode() for token in ids if token >= 0)
    return b"".join(texts).decode("utf8", "replace")


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


Stops = Annotated[Few[str], BeforeValidator(as_list, json_schema_input_type=str | list[str])]


class RareFields(RequestModel):
    """The settings of samplers that few requests use, under llama.cpp's names; others' names are read as well."""

    dry_multiplier: float | None = None
    dry_base: float | None = None
    dry_allowed_length: Whole | None = None
    dry_penalty_last_n: Whole | None = None
    dry_sequence_breakers: Few[str] | None = None
    xtc_probability: float | None = None
    xtc_threshold: float | None = None
    top_n_sigma: float | None = None
    typical_p: float | None = Field(None, validation_alias=AliasChoices("typical_p", "typical"))
    dynatemp_range: float | None = None
    dynatemp_exponent: float | None = None
    mirostat: Whole | None = Field(None, validation_alias=AliasChoices("mirostat", "mirostat_mode"))
    mirostat_tau: float | None = None
    mirostat_eta: float | None = None
    min_tokens: Whole | None = Field(None, validation_alias=AliasChoices("min_tokens", "n_min"))
    samplers: Few[str] | str | None = None  # their order, by names or letters


class GenerationRequest(RareFields, ABC):
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
    lora: AdapterScales | None = None  # adapters that are not named have a scale of 0

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

    def shared(self) -> dict[str, Any]:
        """Return the fields that all interfaces share."""
        return {name: getattr(self, name) for name in GenerationRequest.model_fields}

    def reply_name(self, engine: Engine) -> str:
        """Return the model's name in the reply."""
        return reply_name(self.model, self.lora, engine.pair)

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
        names = set(SAMPLING_NAMES) - {"seed"}
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        if given.get("top_p") == 0:
            given["top_p"] = LIKELIEST
        seed = None if self.seed == -1 else self.seed
        biases = tuple(self._biases(engine))
        return sampling_of(engine.pair.sampling_defaults | given, seed=seed, logit_bias=biases)

    def _biases(self, engine: Engine) -> Iterator[tuple[int, float]]:
        """Yield token ids and the bias to add to their logits."""
        if len(biases := self.logit_bias or ()) > (n_vocab := engine.facts.n_vocab) > 0:
            raise SettingsError(f"logit_bias has {len(biases)} entries for {n_vocab} tokens of the model. Send fewer.")
        for key, bias in biases:
            tokens = engine.tokenize(key, special=False) if isinstance(key, str) else [key]
            yield from ((token, bias) for token in tokens)
        if self.ignore_eos:
            yield from ((token, -math.inf) for token in engine.end_tokens)
