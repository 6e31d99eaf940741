"""Completions as llama.cpp's own clients ask for them and read them: /completion, and /infill for editors."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from app.server.ask import Ask
from app.server.errors import ApiError
from app.server.fields import Fields, SamplingFields
from app.server.openai.completions import SHORT, Prompts, only_one, raw_prompt
from app.server.openai.logprobs import for_chat
from app.server.reply import Event, timings
from runtime.engine import Chunk, Engine, Grammar, Infill, Prompt, Sampling
from runtime.models.registry import Pair

SHORT_SECONDS = 5  # of decoding that are asked for at most, by somebody who types
NO_PENALTIES = {"repetition_penalty": None, "presence_penalty": None, "frequency_penalty": None}


class RootFields(SamplingFields):
    """What both endpoints share."""

    n_predict: Annotated[int, Field(ge=-1)] | None = None  # -1: no limit; 0: only read the prompt
    max_tokens: Annotated[int, Field(ge=-1)] | None = None
    n_probs: int | None = None
    json_schema: dict[str, Any] | None = None
    grammar: str | None = None
    t_max_predict_ms: int | None = None  # 0 or less: no limit
    response_fields: list[str] | None = None

    def sampling(self, pair: Pair) -> Sampling:
        """In llama.cpp a negative top_k is off, no last tokens are no penalty, and -1 of them are all."""
        update: dict[str, Any] = {"top_k": None if self.top_k is None else max(0, self.top_k)}
        if self.penalty_last_n is not None and self.penalty_last_n <= 0:
            update |= {"penalty_last_n": 0} | (NO_PENALTIES if self.penalty_last_n == 0 else {})
        return SamplingFields.sampling(self.model_copy(update=update), pair)

    def ask_with(self, prompt: Callable[[Engine], Prompt], engine: Engine, is_short: bool) -> Ask:
        """Raises SettingsError and ApiError."""
        if self.grammar:
            raise ApiError(400, "grammar is in GBNF, which is not supported. Send a json_schema instead.", "grammar")
        n_predict = self.max_tokens if self.n_predict is None else self.n_predict
        seconds = self.t_max_predict_ms / 1e3 if self.t_max_predict_ms and self.t_max_predict_ms > 0 else None
        return Ask(
            prompt=prompt,
            sampling=self.sampling(engine.pair),
            max_tokens=None if n_predict == -1 else n_predict,
            stops=tuple(self.stop or ()),
            grammar=None if self.json_schema is None else Grammar("json_schema", json.dumps(self.json_schema)),
            n_logprobs=self.n_probs or None,
            max_seconds=seconds,
            is_short=is_short
            or (n_predict is not None and 0 <= n_predict <= SHORT)
            or (seconds or math.inf) <= SHORT_SECONDS,
        )

    def form(self, engine: Engine) -> RootForm:
        """How the reply is worded."""
        return RootForm(engine, self.response_fields)


class RootRequest(RootFields):
    """The body of /completion."""

    prompt: Annotated[str | list[int], BeforeValidator(only_one, json_schema_input_type=Prompts)]

    def ask(self, engine: Engine) -> Ask:
        """Raises SettingsError and ApiError."""
        return self.ask_with(lambda engine: raw_prompt(self.prompt, engine), engine, False)


class ExtraFile(Fields):
    """Text from elsewhere that may help."""

    text: str
    filename: str | None = None


class InfillRequest(RootFields):
    """The body of /infill: `prompt` is what stands between the prefix and the cursor."""

    input_prefix: str
    input_suffix: str
    input_extra: list[ExtraFile] | None = None
    prompt: str | None = None

    def ask(self, engine: Engine) -> Ask:
        """Raises SettingsError and ApiError."""
        files = tuple((extra.filename or "", extra.text) for extra in self.input_extra or ())
        place = Infill(self.input_prefix + (self.prompt or ""), self.input_suffix, files)
        return self.ask_with(lambda engine: place, engine, True)


class RootForm:
    """The bodies of both. Implements Form."""

    last_line = b""

    def __init__(self, engine: Engine, fields: Sequence[str] | None) -> None:
        self.engine, self.fields = engine, fields
        self._last_token: int | None = None

    def begin(self) -> Iterable[Event]:
        """Nothing comes before the text."""
        return ()

    def piece(self, chunk: Chunk) -> Iterator[Event]:
        """Text and its tokens."""
        if chunk.tokens:
            self._last_token = chunk.tokens[-1]
            yield {"index": 0, "content": chunk.text, "tokens": list(chunk.tokens), "stop": False} | self._likely(
                [chunk]
            )
        elif chunk.text:
            yield {"index": 0, "content": chunk.text, "tokens": [], "stop": False}

    def end(self, last: Chunk) -> Iterable[Event]:
        """The numbers; the text has been said."""
        yield self._picked(self._closing(last, "", []))

    def whole(self, chunks: Sequence[Chunk]) -> Event:
        """The reply in one body."""
        tokens = [token for chunk in chunks for token in chunk.tokens]
        self._last_token = tokens[-1] if tokens else None
        text = "".join(chunk.text for chunk in chunks)
        return self._picked(self._closing(chunks[-1], text, tokens) | self._likely(chunks))

    def _closing(self, last: Chunk, text: str, tokens: list[int]) -> Event:
        """`content` comes first: llama.vim looks for it before it reads the JSON."""
        body: Event = {"content": text, "index": 0, "tokens": tokens, "stop": True, "stop_type": self._stop_type(last)}
        body |= {"model": self.engine.pair.name, "id_slot": 0, "truncated": False}
        if (stats := last.stats) is not None:
            body |= {
                "tokens_predicted": stats.predicted_n,
                "tokens_evaluated": stats.prompt_n,
                "tokens_cached": stats.cached_n,
            }
            body["timings"] = timings(stats)
        return body

    def _stop_type(self, last: Chunk) -> str:
        if last.finish_reason != "stop":
            return "limit"
        return "eos" if self._last_token is not None and self.engine.is_end(self._last_token) else "word"

    def _likely(self, chunks: Sequence[Chunk]) -> Event:
        found = for_chat(self.engine, chunks)["content"]
        return {"completion_probabilities": found} if found else {}

    def _picked(self, body: Event) -> Event:
        """Only the fields that were asked for; `a/b` picks b out of a and keeps that name."""
        if self.fields is None:
            return body
        found = ((path, pick(body, path)) for path in self.fields)
        return {path: value for path, value in found if value is not None}


def pick(body: object, path: str) -> object:
    """The value at a path of names; None where there is none."""
    for name in path.split("/"):
        body = body.get(name) if isinstance(body, Mapping) else None
    return body
