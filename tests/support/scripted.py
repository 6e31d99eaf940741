"""An engine that says what a test tells it to, word by word, and keeps what Engine.reply promises: test_engine_contract
holds both to it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from app.tui.session import EDITORS
from bench.instruments.toy import facts
from runtime.conversation.window import PromptWindow
from runtime.core.drafter import NO_DRAFTER, Traits
from runtime.core.errors import ContextError, ModelError
from runtime.engine import ChatPrompt, Chunk, Ids, Message, Pictured, Sampling
from runtime.engine.engine import Answering, Ask
from runtime.engine.output import Status
from runtime.engine.stats import Stats
from runtime.engine.text import TextStream
from runtime.models.registry import Pair
from runtime.speculative.control.controller import Controller
from runtime.speculative.control.costs import PassCosts
from runtime.speculative.control.explain import Explanation, Pass, Why, explain

SECONDS = 0.01  # of a pass, by token
TEMPLATE = [0, 0, 0]  # opens the model's turn


class Encoder:
    """Counts a scripted engine's tokens for its window."""

    def __init__(self, engine: ScriptedEngine) -> None:
        self._engine = engine

    def encode(self, prompt: str | Sequence[Message] | ChatPrompt | Ids, may_overflow: bool = False) -> list[int]:
        return self._engine.encode(prompt)

    def begun(self, talk: ChatPrompt) -> list[int]:
        return self._engine.encode(talk.begun)

    def n_tokens(self, message: Message) -> int:
        return len(self._engine.encode(message.content))


class ScriptedEngine(Answering):
    """Answers the n-th request with the n-th reply, the last one again and again.

    A word is a token, and its length the token's id. After the first, every second one is the drafter's, when there is
    one. `[wait]` before a word holds the reply there until `go` is set or it is cancelled; `[fail]` fails; at
    `[full]` the context has no more room; what follows `[tail]` comes with the last chunk, without a pass.
    """

    def __init__(self, *replies: str, drafter: str = "model", n_ctx: int = 256, sees: bool = False) -> None:
        self.pair, self.limits = Pair("scripted", target=None), EDITORS  # type: ignore[arg-type]
        self.facts, self.replies, self.drafter = facts(n_ctx=n_ctx), list(replies), drafter
        self.facts = replace(self.facts, vision="mlp" * sees)
        self.seen: list[tuple[bytes, ...]] = []  # the images of each request
        self.asked: list[tuple[Any, Sampling, int | None]] = []
        self.predictions: list[str] = []
        self.go, self.closed = threading.Event(), False
        self.status = Status()
        self._stats, self._is_traced = Stats(), False
        costs = PassCosts()
        for width, seconds in enumerate((10e-3, 12e-3, 14e-3, 30e-3), start=1):
            costs.set(width, seconds)
        self.controller = Controller(costs, {"model": Traits(1e-3)}, max_k=3)
        self.controller.begin(0)

    def answer(self, ask: Ask, cancel: Callable[[], bool], on_prefill: Callable[[int, int], None]) -> Iterator[Chunk]:
        prompt, self._is_traced = ask.prompt, ask.is_traced
        self.seen.append(prompt.images if isinstance(prompt, Pictured) else ())
        prompt = prompt.prompt if isinstance(prompt, Pictured) else prompt
        window = PromptWindow(prompt, Encoder(self), self.facts.n_ctx, ask.when_full == "drop-oldest")  # type: ignore[arg-type]
        n = len(window.begin(ask.max_tokens))
        if not n:
            raise ContextError("The prompt is empty. Write something.")
        if n >= self.facts.n_ctx:
            text = f"The prompt has {n} tokens, but the context holds {self.facts.n_ctx}. Shorten it."
            raise ContextError(text, n, self.facts.n_ctx)
        turns = prompt.messages if isinstance(prompt, ChatPrompt) and not prompt.begun else prompt
        self.predictions.append(ask.prediction)
        self.asked.append((list(turns) if isinstance(turns, Sequence) else turns, ask.sampling, ask.max_tokens))
        text = self.replies[min(len(self.asked), len(self.replies)) - 1]
        self._stats = Stats(prompt_n=n, plain_per_second=100.0)
        return self._run(text, ask.max_tokens, TextStream(ask.stops), cancel, on_prefill)

    def _run(
        self, script: str, max_tokens: int | None, text: TextStream, cancel: Callable[[], bool],
        on_prefill: Callable[[int, int], None],
    ) -> Iterator[Chunk]:  # fmt: skip
        script, _, tail = script.partition("[tail]")
        stats, words, reason = self._stats, script.replace("] ", "]").split(" "), None
        if not cancel():
            on_prefill(stats.prompt_n - 1, stats.prompt_n - 1)
        while reason is None:
            at = stats.predicted_n
            self._hold(words[at], cancel)
            if cancel():
                reason = "cancelled"
                break
            if "[full]" in words[at]:
                reason = "length"
                break
            yield self._pass(words, at, 2 if max_tokens is None else max_tokens - at, text)
            if text.stopped or stats.predicted_n == len(words):
                reason = "stop"
            elif stats.predicted_n == max_tokens:
                reason = "length"
        if 2 * stats.drafters["none"] > stats.n_passes:
            stats.reason = self.controller.reason()
        tail = text.finish() + tail
        yield Chunk(tail, pieces=(tail,), finish_reason=reason, stats=stats)

    def _hold(self, word: str, cancel: Callable[[], bool]) -> None:
        if "[fail]" in word:
            raise ModelError("x.gguf does not answer.")
        if "[wait]" in word:
            while not (self.go.is_set() or cancel()):
                self.go.wait(0.005)

    def _pass(self, words: list[str], at: int, most: int, text: TextStream) -> Chunk:
        """The drafter's word and the target's own, or only the latter."""
        both, pieces = words[at : at + 2], list[str]()
        guessed = bool(at and self.drafter and most > 1 and len(both) == 2 and "[" not in "".join(both))
        both = [word.removeprefix("[wait]") for word in both[: 1 + guessed]]
        for i, word in enumerate(both):
            pieces.append(text.feed((" " * bool(at + i) + word).encode()))
            if text.stopped:
                break
        n, seconds, drafter = len(pieces), SECONDS * len(pieces), self.drafter if guessed else NO_DRAFTER
        self._stats.decode_seconds += seconds
        reason = "" if guessed else self.controller.reason().text
        why = Why(self._stats.prompt_n + at, (), reason, 100.0) if self._is_traced else None
        made = Pass(seconds, drafter, int(guessed), int(guessed), n, 0.0, seconds, why=why)
        self._stats.steps.append(made)
        return Chunk("".join(pieces), tuple(map(len, both[:n])), (guessed, False)[:n], tuple(pieces), made=made)

    def encode(self, prompt: str | Sequence[Message] | ChatPrompt | Ids) -> list[int]:
        """One token a word, by its length; a conversation ends in those of a chat template."""
        if isinstance(prompt, Ids):
            return list(prompt.tokens)
        if isinstance(prompt, ChatPrompt):
            return [*self.encode(prompt.messages), *self.encode(prompt.begun)]
        if isinstance(prompt, str):
            return [len(word) for word in prompt.split()]
        return [token for message in prompt for token in self.encode(message.content)] + TEMPLATE

    def tokenize(self, text: str, *, special: bool = True) -> list[int]:
        return self.encode(text)

    def passes(self, first: int = 0) -> tuple[Pass, ...]:
        return tuple(self._stats.steps[first:])

    def explain(self) -> Explanation:
        n_context = self._stats.prompt_n + self._stats.predicted_n
        return explain(self.controller, n_context, self.controller.reason().text)

    def watch(self, on_lost: Callable[[Exception], None]) -> None:
        pass

    def close(self) -> None:
        self.closed = True
