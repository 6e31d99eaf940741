"""A request's work for the engine, as plain data. Knows the engine; must not know a protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from runtime.engine import Chunk, Engine, Grammar, Ids, Prompt, Sampling, ThoughtBudget
from runtime.engine.engine import Ask

MASK = 2**64 - 1  # the largest seed


def no_thoughts(engine: Engine) -> ThoughtBudget | None:
    """Return None: reasoning is unlimited."""
    return None


def no_grammar(engine: Engine) -> Grammar | None:
    """Return None: a reply may be any text."""
    return None


def fixed(grammar: Grammar | None) -> Callable[[Engine], Grammar | None]:
    """Return a grammar that does not depend on the model."""
    return lambda engine: grammar


def unchanged(engine: Engine) -> tuple[str, ...]:
    """Return an empty tuple: nothing was changed in the prompt."""
    return ()


class EngineTask(Protocol):
    """Work that the engine does step by step: a text to complete, or texts to embed."""

    @property
    def prompt_field(self) -> str:
        """The request field that holds the prompt, named in errors."""

    @property
    def n_prompt(self) -> int:
        """The number of prompt tokens."""

    @property
    def max_tokens(self) -> int | None:
        """The most tokens to generate. 0: prefill only; None: no limit."""

    @property
    def max_decode_seconds(self) -> float | None:
        """The longest time for generating in seconds, counted from the end of the prefill. None: no limit."""

    @property
    def changes(self) -> tuple[str, ...]:
        """Changes to the conversation that the chat template required."""

    def work(self, engine: Engine, should_stop: Callable[[], bool]) -> Ask | Iterator[Chunk]:
        """Return what to ask the engine, or an iterator of chunks, one for each step of its own work. The last chunk
        has a finish reason. Raises what the engine raises.
        """


@dataclass(frozen=True, slots=True)
class LineLimits:
    """Limits on a reply in terms of its lines."""

    seconds: float | None = None  # of generating, applied once a line is complete; None: no limit
    n_indent: int = 0  # spaces or tabs that each line after the first begins with


UNLIMITED_LINES = LineLimits()


@dataclass(frozen=True, slots=True)
class CompletionTask:
    """A text to complete: prompt, sampling settings and stop conditions. Implements EngineTask."""

    prompt: Callable[[Engine], Prompt]
    sampling: Sampling
    max_tokens: int | None = None  # 0: prefill only, so that the next request finds the prompt in the cache
    stops: tuple[str, ...] = ()
    grammar: Callable[[Engine], Grammar | None] = no_grammar
    thoughts: Callable[[Engine], ThoughtBudget | None] = no_thoughts
    n_logprobs: int | None = None
    after_sampling: bool = False  # whether log probabilities are those after the sampling settings
    prediction: str = ""
    lines: LineLimits = UNLIMITED_LINES
    is_short: bool = False  # such as an editor's completion
    prompt_field: str = "prompt"
    fitted: Callable[[Engine], tuple[str, ...]] = unchanged  # changes to the conversation
    prompt_ids: tuple[int, ...] = ()  # after tokenization
    changes: tuple[str, ...] = ()  # likewise

    @property
    def max_decode_seconds(self) -> float | None:
        """The longest time for generating in seconds. None: no limit."""
        return self.lines.seconds

    @property
    def n_prompt(self) -> int:
        """The number of prompt tokens, after tokenization."""
        return len(self.prompt_ids)

    def tokenized(self, engine: Engine) -> CompletionTask:
        """Return the task with the prompt as token ids. This is done ahead because it is slow for a long prompt, and no
        other reply must wait for it.
        """
        ids = Ids(tuple(engine.encode(self.prompt(engine))))
        thoughts, grammar = self.thoughts(engine), self.grammar(engine)
        return replace(
            self,
            prompt=lambda engine: ids,
            prompt_ids=ids.tokens,
            thoughts=lambda engine: thoughts,
            grammar=lambda engine: grammar,
            changes=self.fitted(engine),
        )

    def limited(self, most: int | None) -> CompletionTask:
        """Return the task with at most `most` tokens. None: no limit."""
        is_within = most is None or (self.max_tokens is not None and self.max_tokens <= most)
        return self if is_within else replace(self, max_tokens=most)

    def another(self, i: int) -> CompletionTask:
        """Return the task for choice `i`: its seed is `i` higher."""
        seed = self.sampling.seed
        return self if seed is None else replace(self, sampling=replace(self.sampling, seed=(seed + i) & MASK))

    def work(self, engine: Engine, should_stop: Callable[[], bool]) -> Ask:
        """Return what to ask the engine."""
        return Ask(
            self.prompt(engine), self.sampling, self.max_tokens, self.stops, self.grammar(engine),
            self.thoughts(engine), self.n_logprobs, self.after_sampling, prediction=self.prediction,
            is_short=self.is_short, n_indent=self.lines.n_indent,
        )  # fmt: skip
