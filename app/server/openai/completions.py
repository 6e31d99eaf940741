"""/v1/completions: text completions. With `suffix`, the model fills the gap between two texts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated

from pydantic import BeforeValidator, Field

from app.server.bounds import Text
from app.server.endpoint import generation_endpoint
from app.server.errors import ApiError
from app.server.fields import Whole
from app.server.generation import MAX_CHOICES, PromptIds
from app.server.openai.common import OpenAIRequest
from app.server.openai.completions_response import CompletionExtras, CompletionFormatter, TextCompletion
from app.server.prompts import AnyPrompt, Prompts, prompt_ids, text_of_ids
from app.server.task import CompletionTask, fixed
from runtime.engine import Engine, Infill, Prompt

SHORT_TOKENS = 256  # tokens; shorter completions go before waiting chats
MAX_LOGPROBS = 20


def none_for_false(value: object) -> object:
    """Return None for false, which some clients send for no text."""
    return None if value is False else value


class CompletionRequest(OpenAIRequest):
    """The body of a request to /v1/completions."""

    prompt: Prompts
    suffix: Annotated[Text | None, BeforeValidator(none_for_false)] = None
    echo: bool | None = None
    best_of: Annotated[Whole, Field(ge=1, le=MAX_CHOICES)] | None = None
    logprobs: Annotated[Whole, Field(ge=0, le=MAX_LOGPROBS)] | None = None

    @property
    def n_choices(self) -> int:
        """The number of replies generated for each prompt. The best of them are sent."""
        return max(self.n_wanted, self.best_of or 1)

    @property
    def n_wanted(self) -> int:
        """The number of replies sent for each prompt."""
        return self.n or 1

    def task(self, engine: Engine) -> CompletionTask:
        """Return the task for the first prompt. Raises SettingsError and ApiError."""
        return self.tasks(engine)[0]

    def tasks(self, engine: Engine) -> list[CompletionTask]:
        """Return one task for each prompt. Raises SettingsError and ApiError."""
        self._check()
        return [self._task(prompt, engine) for prompt in self.prompt]

    def _check(self) -> None:
        """Raises ApiError for contradicting fields."""
        if self.suffix and not all(isinstance(prompt, str) for prompt in self.prompt):
            message = "prompt must be text if there is a suffix. Send the text before the cursor."
            raise ApiError(400, message, "prompt")
        if self.echo and self.logprobs is not None:
            message = "echo excludes logprobs, because those of a prompt are not kept. Leave one of them out."
            raise ApiError(400, message, "echo")
        if self.best_of is not None and self.best_of < self.n_wanted:
            raise ApiError(400, "best_of must not be less than n. Raise it, or leave it out.", "best_of")
        if self.stream and self.n_choices > self.n_wanted:
            message = (
                "best_of cannot be streamed, because the best is known only at the end. Leave out stream or best_of."
            )
            raise ApiError(400, message, "best_of")

    def _task(self, prompt: AnyPrompt, engine: Engine) -> CompletionTask:
        compares = self.n_choices > self.n_wanted
        return CompletionTask(
            prompt=partial(self._prompt, prompt),
            sampling=self.sampling(engine),
            max_tokens=self.token_limit,
            stops=tuple(self.stop or ()),
            grammar=fixed(self.format_grammar()),
            n_logprobs=0 if compares and self.logprobs is None else self.logprobs,
            after_sampling=bool(self.post_sampling_probs),
            prediction=self.predicted_text,
            is_short=self.token_limit is not None and self.token_limit <= SHORT_TOKENS,
        )

    def _prompt(self, prompt: AnyPrompt, engine: Engine) -> Prompt:
        if self.suffix and isinstance(prompt, str):
            return Infill(prompt, self.suffix)
        return prompt_ids(prompt, engine)

    def formatter(self, engine: Engine, prompts: Sequence[PromptIds]) -> CompletionFormatter:
        """Return the formatter for the replies."""
        wanted = CompletionExtras(self.logprobs is not None, self.include_usage, self.n_wanted, self.n_choices)
        return CompletionFormatter(engine, wanted, self._echoes(engine))

    def _echoes(self, engine: Engine) -> list[str]:
        """Return the text to put before the replies to each prompt."""
        if not self.echo:
            return [""] * len(self.prompt)
        return [
            prompt if isinstance(prompt, str) else text_of_ids(prompt_ids(prompt, engine).tokens, engine)
            for prompt in self.prompt
        ]


ENDPOINT = generation_endpoint("/completions", CompletionRequest, TextCompletion)
