"""What a request has the engine do, as plain data. Knows the engine; must not know a protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from runtime.engine import Chunk, Engine, Grammar, Ids, Prompt, Sampling, ThoughtBudget
from runtime.engine.engine import Ask

MASK = 2**64 - 1  # the largest seed


def no_thoughts(engine: Engine) -> ThoughtBudget | None:
    """Nothing limits how long the model thinks."""
    return None


def no_grammar(engine: Engine) -> Grammar | None:
    """Return that a reply may be any text."""
    return None


def fixed(grammar: Grammar | None) -> Callable[[Engine], Grammar | None]:
    """Return a grammar that does not depend on the model."""
    return lambda engine: grammar


def unchanged(engine: Engine) -> tuple[str, ...]:
    """Nothing was changed in a prompt."""
    return ()


class EngineTask(Protocol):
    """Something the engine does step by step: text to complete, or texts to embed."""

    @property
    def prompt_field(self) -> str:
        """The field of the request that holds the prompt; errors name it."""

    @property
    def is_short(self) -> bool:
        """Does it go before long tasks?"""

    @property
    def n_prompt(self) -> int:
        """Tokens to read."""

    @property
    def max_tokens(self) -> int | None:
        """The most tokens to generate. 0: it ends when the prompt has been read; None: no limit."""

    @property
    def max_decode_seconds(self) -> float | None:
        """The longest time for generating, counted from the end of the prefill; None: no limit."""

    @property
    def changes(self) -> tuple[str, ...]:
        """What was changed in the conversation, so that the chat template takes it."""

    def begin(self, engine: Engine, should_stop: Callable[[], bool]) -> int | Iterator[Chunk]:
        """Return the engine's number of the reply, or chunks, each of which is a step of work and the last of which has
        a finish reason. Raises what the engine raises.
        """


@dataclass(frozen=True, slots=True)
class LineLimits:
    """Where a reply ends by its lines."""

    seconds: float | None = None  # of generating, once a line is whole; None: no limit
    n_indent: int = 0  # spaces or tabs that each line after the first begins with


UNLIMITED_LINES = LineLimits()


@dataclass(frozen=True, slots=True)
class CompletionTask:
    """Text to complete: from which prompt, how tokens are sampled, when to stop. Implements EngineTask."""

    prompt: Callable[[Engine], Prompt]
    sampling: Sampling
    max_tokens: int | None = None  # 0: the prompt is only read, so that the next request finds it in the cache
    stops: tuple[str, ...] = ()
    grammar: Callable[[Engine], Grammar | None] = no_grammar
    thoughts: Callable[[Engine], ThoughtBudget | None] = no_thoughts
    n_logprobs: int | None = None
    after_sampling: bool = False  # are log probabilities those that the sampling settings leave?
    prediction: str = ""
    lines: LineLimits = UNLIMITED_LINES
    is_short: bool = False  # such as an editor's completion
    prompt_field: str = "prompt"
    fitted: Callable[[Engine], tuple[str, ...]] = unchanged  # what was changed in the conversation
    prompt_ids: tuple[int, ...] = ()  # once it is tokenized
    changes: tuple[str, ...] = ()  # likewise

    @property
    def max_decode_seconds(self) -> float | None:
        """As EngineTask says."""
        return self.lines.seconds

    @property
    def n_prompt(self) -> int:
        """Tokens to read, once it is tokenized."""
        return len(self.prompt_ids)

    def tokenized(self, engine: Engine) -> CompletionTask:
        """The same with the prompt as ids: that takes a while for a long one, which no other reply must wait for."""
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
        """The same with at most so many tokens."""
        is_within = most is None or (self.max_tokens is not None and self.max_tokens <= most)
        return self if is_within else replace(self, max_tokens=most)

    def another(self, i: int) -> CompletionTask:
        """The same for the choice of index `i`, which is another one: a seed is as many further."""
        seed = self.sampling.seed
        return self if seed is None else replace(self, sampling=replace(self.sampling, seed=(seed + i) & MASK))

    def begin(self, engine: Engine, should_stop: Callable[[], bool]) -> int:
        """Have the engine begin the reply and return its number. Raises what the engine raises."""
        ask = Ask(
            self.prompt(engine), self.sampling, self.max_tokens, self.stops, self.grammar(engine),
            self.thoughts(engine), self.n_logprobs, self.after_sampling, prediction=self.prediction,
            is_short=self.is_short, n_indent=self.lines.n_indent,
        )  # fmt: skip
        return engine.add(ask)
