"""Text completions as OpenAI's clients ask for them and read them; with `suffix`, the place between two texts is filled
in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from app.server.ask import Ask
from app.server.errors import ApiError
from app.server.fields import OpenAIFields, join
from app.server.openai.logprobs import for_text
from app.server.reply import Event, new_id, now, timings, usage
from runtime.engine import Chunk, Engine, Ids, Infill, Prompt

Prompts = str | list[int] | Annotated[list[str | list[int]], Field(min_length=1, max_length=1)]
SHORT = 256  # tokens up to which a completion goes before chats that wait


def only_one(value: object) -> object:
    """A list of one prompt as that prompt. Raises PydanticCustomError for what is no prompt, and for several."""
    one = value[0] if isinstance(value, list) and len(value) == 1 and isinstance(value[0], (str, list)) else value
    if isinstance(one, str) or (isinstance(one, list) and all(isinstance(token, int) for token in one)):
        return one
    raise PydanticCustomError("prompt_type", "Input should be one text or one list of token ids")


def raw_prompt(prompt: str | list[int], engine: Engine) -> Prompt:
    """Text in which control tokens may be named, or ids."""
    return Ids(tuple(engine.tokenize(prompt, bos=True) if isinstance(prompt, str) else prompt))


class CompletionRequest(OpenAIFields):
    """The body of /v1/completions."""

    prompt: Annotated[str | list[int], BeforeValidator(only_one, json_schema_input_type=Prompts)]
    suffix: str | None = None
    echo: Literal[False] | None = None
    best_of: Literal[1] | None = None
    logprobs: int | None = None

    def ask(self, engine: Engine) -> Ask:
        """Raises SettingsError and ApiError."""
        if self.suffix and not isinstance(self.prompt, str):
            raise ApiError(
                400, "prompt must be text where there is a suffix. Send the text before the place.", "prompt"
            )
        return Ask(
            prompt=self._prompt,
            sampling=self.sampling(engine.pair),
            max_tokens=self.limit,
            stops=tuple(self.stop or ()),
            grammar=self.response_format.grammar() if self.response_format else None,
            n_logprobs=self.logprobs,
            prediction=join(self.prediction.content) if self.prediction else "",
            is_short=self.limit is not None and self.limit <= SHORT,
        )

    def _prompt(self, engine: Engine) -> Prompt:
        if self.suffix and isinstance(self.prompt, str):
            return Infill(self.prompt, self.suffix)
        return raw_prompt(self.prompt, engine)

    def form(self, engine: Engine) -> CompletionForm:
        """How the reply is worded."""
        return CompletionForm(
            engine, self.logprobs is not None, bool(self.stream_options and self.stream_options.include_usage)
        )


class CompletionForm:
    """The bodies of text completions. Implements Form."""

    last_line = b"data: [DONE]\n\n"

    def __init__(self, engine: Engine, logprobs: bool, include_usage: bool) -> None:
        self.engine, self.logprobs, self.include_usage = engine, logprobs, include_usage
        self.head: Event = {
            "id": new_id("cmpl"),
            "object": "text_completion",
            "created": now(),
            "model": engine.pair.name,
        }
        self._n_said = 0  # characters

    def begin(self) -> Iterable[Event]:
        """Nothing comes before the text."""
        return ()

    def piece(self, chunk: Chunk) -> Iterator[Event]:
        """Text, and the log probabilities of its tokens."""
        if chunk.text or (self.logprobs and chunk.logprobs):
            yield self._event(chunk.text, [chunk])
            self._n_said += len(chunk.text)

    def end(self, last: Chunk) -> Iterator[Event]:
        """Why it ended, and the numbers with the last event."""
        stats = last.stats
        numbers: Event = {"timings": timings(stats)} if stats else {}
        finish = self._event("", finish_reason=last.finish_reason)
        if self.include_usage and stats:
            yield finish
            yield self.head | {"choices": [], "usage": usage(stats)} | numbers
        else:
            yield finish | numbers

    def _event(self, text: str, chunks: Sequence[Chunk] = (), finish_reason: str | None = None) -> Event:
        choice = {"index": 0, "text": text, "finish_reason": finish_reason, "logprobs": self._logprobs(chunks)}
        event = self.head | {"choices": [choice]}
        return event | {"usage": None} if self.include_usage else event

    def _logprobs(self, chunks: Sequence[Chunk]) -> Event | None:
        return for_text(self.engine, chunks, self._n_said) if self.logprobs and chunks else None

    def whole(self, chunks: Sequence[Chunk]) -> Event:
        """The reply in one body."""
        last, text = chunks[-1], "".join(chunk.text for chunk in chunks)
        choice = {"index": 0, "text": text, "finish_reason": last.finish_reason, "logprobs": self._logprobs(chunks)}
        numbers: Event = {"usage": usage(last.stats), "timings": timings(last.stats)} if last.stats else {}
        return self.head | {"choices": [choice]} | numbers
