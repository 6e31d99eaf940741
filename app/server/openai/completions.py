"""/v1/completions: text completions, as one body or a stream of pieces. With `suffix`, the model fills the gap between
two texts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, Field

from app.reply_text import ShownToken, ShownTokens
from app.server.endpoint import generation_endpoint
from app.server.errors import ApiError
from app.server.fields import Text, Whole
from app.server.generation import MAX_CHOICES, AnyPrompt, Prompts, pictured, prompt_ids, text_of_ids
from app.server.logprobs import TextLogprobs, text_logprobs
from app.server.openai.common import ChoicesFormatter, FinishReason, OpenAIRequest, new_id
from app.server.pictures import MarkedPrompt
from app.server.task import CompletionTask, PromptIds, encoded
from app.server.task_response import by_reply
from app.server.usage import Timings, Usage
from app.server.wire import Event
from runtime.engine import Chunk, Engine, Infill, Prompt
from runtime.engine.engine import Ask

Reply = list[Chunk]
Shown = Sequence[ShownToken] | None  # None: an event without text
SHORT_TOKENS = 256  # tokens; shorter completions go before waiting chats
MAX_LOGPROBS = 20


class TextChoice(BaseModel):
    """One of the texts: those for the first prompt come first."""

    index: int
    text: str
    finish_reason: FinishReason
    logprobs: TextLogprobs | None


class TextCompletion(BaseModel):
    """The body that answers a request to /v1/completions; llama.cpp's clients ask without /v1, and read `content`."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[TextChoice]
    content: str
    usage: Usage
    timings: Timings


class CompletionFormatter(ChoicesFormatter):
    """Writes text completions, each after its echo."""

    def __init__(self, engine: Engine, asked: CompletionRequest, echoes: Sequence[str]) -> None:
        head: Event = {"id": new_id("cmpl-"), "object": "text_completion"}
        super().__init__(engine, asked, head, len(echoes), asked.logprobs is not None)
        self.echoes, self.n_wanted = echoes, asked.n_wanted

    def first_events(self) -> Iterator[Event]:
        """Yield the echo of the next text."""
        if echo := self.echoes[self._tally.n_ended // self.n_wanted]:
            yield self._event(echo)

    def chunk_events(self, chunk: Chunk) -> Iterator[Event]:
        """Yield text and the log probabilities of its tokens."""
        shown = self._shown.read(chunk) if self.shows_tokens else []
        if chunk.text or shown:
            yield self._event(chunk.text, shown)

    def _finish(self, last: Chunk) -> Event:
        return self._event("", finish_reason=last.finish_reason)

    def _event(self, text: str, shown: Shown = None, finish_reason: str | None = None) -> Event:
        choice = self._choice(self._tally.n_ended, text, shown, finish_reason)
        return self._event_of(choice, content=text, stop=finish_reason is not None)

    def _choice(self, index: int, text: str, shown: Shown, finish_reason: str | None) -> Event:
        logprobs = text_logprobs(self.engine, shown) if self.shows_tokens and shown is not None else None
        return {"index": index, "text": text, "finish_reason": finish_reason, "logprobs": logprobs}

    def body(self, chunks: Sequence[Chunk]) -> Event:
        """Return the body of TextCompletion."""
        replies, n_made, choices = by_reply(chunks), self.asked.n_choices, list[Event]()
        for reply in replies:
            self._tally.add(reply[-1])
        for i, echo in enumerate(self.echoes):
            for reply in best(replies[i * n_made : (i + 1) * n_made], self.n_wanted):
                reader, text = ShownTokens(self.engine), echo + "".join(chunk.text for chunk in reply)
                shown = [token for chunk in reply for token in reader.read(chunk)]
                choices.append(self._choice(len(choices), text, shown, reply[-1].finish_reason))
        found: Event = {"choices": choices, "content": choices[0]["text"], "stop": True}
        return self.head | found | self._tally.usage() | self._tally.timings()


def best(replies: Sequence[Reply], n: int) -> Sequence[Reply]:
    """Return the `n` replies with the highest mean log probability, best first. Exactly `n` replies are returned
    unsorted.
    """
    return replies if len(replies) == n else sorted(replies, key=mean_logprob, reverse=True)[:n]


def mean_logprob(reply: Reply) -> float:
    """Return the mean log probability of a reply's tokens. An empty reply ranks last."""
    found = [entry.logprob for chunk in reply for entry in chunk.logprobs]
    return sum(found) / len(found) if found else -math.inf


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

    @property
    def n_prompts(self) -> int:
        """The number of prompts."""
        return len(self.prompt)

    def task(self, engine: Engine, i: int = 0) -> CompletionTask:
        """Return the task for prompt `i`; see GenerationRequest."""
        if i == 0:
            self._check()
        sampling, grammar, compares = self.sampling(engine), self.format_grammar(), self.n_choices > self.n_wanted
        ask = Ask(
            encoded(self._prompt(self.prompt[i], engine), engine),
            sampling,
            self.token_limit,
            tuple(self.stop or ()),
            grammar,
            n_logprobs=0 if compares and self.logprobs is None else self.logprobs,
            after_sampling=bool(self.post_sampling_probs),
            prediction=self.predicted_text,
            is_short=self.token_limit is not None and self.token_limit <= SHORT_TOKENS,
        )
        return CompletionTask(ask)

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

    def _prompt(self, prompt: AnyPrompt, engine: Engine) -> Prompt:
        if self.suffix and isinstance(prompt, str):
            return Infill(prompt, self.suffix)
        return pictured(prompt, engine)

    def formatter(self, engine: Engine, prompts: Sequence[PromptIds]) -> CompletionFormatter:
        """Return the formatter for the replies."""
        return CompletionFormatter(engine, self, self._echoes(engine))

    def _echoes(self, engine: Engine) -> list[str]:
        """Return the text to put before the replies to each prompt."""
        if not self.echo:
            return [""] * len(self.prompt)
        return [text_of(prompt, engine) for prompt in self.prompt]


def text_of(prompt: AnyPrompt | MarkedPrompt, engine: Engine) -> str:
    """Return the text of a prompt."""
    if isinstance(prompt, MarkedPrompt):
        return prompt.text
    return prompt if isinstance(prompt, str) else text_of_ids(prompt_ids(prompt, engine).tokens, engine)


ENDPOINT = generation_endpoint("/completions", CompletionRequest, TextCompletion)
