"""/completion of llama.cpp, and /infill for editors: the text at the cursor, given that before and after it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import AliasChoices, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from app.server.endpoint import generation_endpoint
from app.server.fields import Few, RequestModel, Text, Whole
from app.server.generation import MAX_CHOICES, GenerationRequest, Prompts, pictured
from app.server.llamacpp.completion_response import LlamaCppBody, LlamaCppFormatter
from app.server.openai.completions import SHORT_TOKENS
from app.server.task import CompletionTask, PromptIds, encoded
from app.server.wire import Event
from runtime.core.rare_sampling import RareSampling
from runtime.engine import Engine, Infill, Prompt, Sampling, values_of
from runtime.engine.engine import Ask

# What this server does not have, as it is where it is off
OFF: Event = {
    "adaptive_target": -1.0, "adaptive_decay": 0.9, "n_keep": 0, "n_discard": 0, "min_keep": 0,
    "backend_sampling": False, "lora": [],
}  # fmt: skip
ORDER = ["penalties", "dry", "temperature", "top_k", "top_p", "min_p"]  # where no other sampler is used
RENAMED = {"penalty_last_n": "repeat_last_n", "repetition_penalty": "repeat_penalty"}
UNLIMITED = -1
SHORT_SECONDS = 5  # of generating; a request with a lower limit comes from somebody typing
MAX_MS = 2**53  # whole numbers up to here are exact as floats


def sampling_settings(sampling: Sampling) -> Event:
    """Return the sampling settings. A seed of -1 means none."""
    values = {RENAMED.get(name, name): value for name, value in values_of(sampling).items()}
    changed = {"seed": -1 if sampling.seed is None else sampling.seed, "samplers": order(sampling.rare)}
    return OFF | values | changed


def order(rare: RareSampling) -> list[str]:
    """Return the samplers in their order."""
    return [name for name in rare.order if name != "mirostat"] if rare.has_order else ORDER


def biases(sampling: Sampling) -> list[Event]:
    """Return the biases of logits by token. null is minus infinity, which JSON cannot write."""
    return [{"token": token, "bias": None if bias == -math.inf else bias} for token, bias in sampling.logit_bias]


def refuse_images(value: object) -> object:
    """Raises PydanticCustomError for anything but an empty list, which older clients send."""
    if value:
        raise PydanticCustomError("unsupported", "Input should be empty: image input is not supported, so leave it out")
    return value


NoImages = Annotated[list[Any], Field(max_length=0), BeforeValidator(refuse_images)] | None


class LlamaCppRequest(GenerationRequest):
    """The fields that /completion and /infill share."""

    n_predict: Annotated[Whole, Field(ge=-1)] | None = None  # -1: no limit; 0: only read the prompt
    max_tokens: Annotated[Whole, Field(ge=-1)] | None = None
    n_cmpl: Annotated[Whole, Field(ge=1, le=MAX_CHOICES)] | None = Field(
        None, validation_alias=AliasChoices("n_cmpl", "n")
    )
    n_probs: Annotated[Whole, Field(ge=0)] | None = None
    post_sampling_probs: bool | None = None
    t_max_predict_ms: Annotated[Whole, Field(le=MAX_MS)] | None = None  # 0 or less: no limit; needs one whole line
    n_indent: Annotated[Whole, Field(ge=0)] | None = None  # spaces or tabs that each line after the first begins with
    return_tokens: bool | None = None
    return_progress: bool | None = None
    timings_per_token: bool | None = None
    response_fields: Few[str] | None = None
    image_data: NoImages = None

    @property
    def n_choices(self) -> int:
        """The number of replies to each prompt."""
        return self.n_cmpl or 1

    @property
    def token_limit(self) -> int | None:
        """The most tokens to generate. 0: prefill only; None: no limit."""
        limit = self.max_tokens if self.n_predict is None else self.n_predict
        return None if limit == UNLIMITED else limit

    def sampling(self, engine: Engine) -> Sampling:
        """Return the sampling settings in llama.cpp's terms: a negative top_k is off, a dry_base below 1 is absent."""
        update: dict[str, Any] = {"top_k": None if self.top_k is None else max(-1, self.top_k)}
        if self.dry_base is not None and self.dry_base < 1:
            update["dry_base"] = None
        return GenerationRequest.sampling(self.model_copy(update=update), engine)

    def task_for(self, prompt: Prompt, engine: Engine, is_short: bool) -> CompletionTask:
        """Return the task for a prompt. Raises SettingsError and ApiError."""
        sampling, grammar, limit = self.sampling(engine), self.constraint(), self.token_limit
        seconds = self.t_max_predict_ms / 1e3 if self.t_max_predict_ms and self.t_max_predict_ms > 0 else None
        is_brief = (limit is not None and limit <= SHORT_TOKENS) or (seconds or math.inf) <= SHORT_SECONDS
        ask = Ask(
            encoded(prompt, engine),
            sampling,
            limit,
            tuple(self.stop or ()),
            grammar,
            n_logprobs=min(self.n_probs, engine.facts.n_vocab) if self.n_probs else None,
            after_sampling=bool(self.post_sampling_probs),
            is_short=is_short or is_brief,
            n_indent=self.n_indent or 0,
        )
        return CompletionTask(ask, max_decode_seconds=seconds)

    def formatter(self, engine: Engine, prompts: Sequence[PromptIds]) -> LlamaCppFormatter:
        """Return the formatter for the replies."""
        return LlamaCppFormatter(engine, self, prompts)

    def settings(self, engine: Engine) -> Event:
        """Return the body's `generation_settings`."""
        sampling = self.sampling(engine)
        limit = UNLIMITED if self.token_limit is None else self.token_limit
        return sampling_settings(sampling) | {
            "n_predict": limit,
            "max_tokens": limit,
            "stop": self.stop or [],
            "ignore_eos": bool(self.ignore_eos),
            "stream": bool(self.stream),
            "logit_bias": biases(sampling),
            "n_probs": self.n_probs or 0,
            "grammar": self.grammar or "",
            "lora": [each.model_dump() for each in self.lora or ()],
            "timings_per_token": bool(self.timings_per_token),
            "post_sampling_probs": bool(self.post_sampling_probs),
        }


class RawCompletionRequest(LlamaCppRequest):
    """The body of a request to /completion."""

    prompt: Prompts

    @property
    def n_prompts(self) -> int:
        """The number of prompts."""
        return len(self.prompt)

    def task(self, engine: Engine, i: int = 0) -> CompletionTask:
        """Return the task for prompt `i`; see GenerationRequest."""
        return self.task_for(pictured(self.prompt[i], engine), engine, is_short=False)


class ExtraFile(RequestModel):
    """Text from elsewhere that may help."""

    text: Text
    filename: str | None = None


class InfillRequest(LlamaCppRequest):
    """The body of a request to /infill: `prompt` is what stands between the prefix and the cursor."""

    input_prefix: Text
    input_suffix: Text
    input_extra: Few[ExtraFile] | None = None
    prompt: Text | None = None

    def task(self, engine: Engine, i: int = 0) -> CompletionTask:
        """Return the task for the engine; see GenerationRequest."""
        files = tuple((extra.filename or "", extra.text) for extra in self.input_extra or ())
        prompt = Infill(self.input_prefix + (self.prompt or ""), self.input_suffix, files)
        return self.task_for(prompt, engine, is_short=True)


ENDPOINT = generation_endpoint("/completion", RawCompletionRequest, LlamaCppBody)
INFILL = generation_endpoint("/infill", InfillRequest, LlamaCppBody, need="insert")
