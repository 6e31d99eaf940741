"""An engine that says what a test tells it to, word by word, with the semantics of Engine.reply: stops when asked,
numbers that add up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from runtime.core.errors import ContextError
from runtime.engine import Ids, Message
from runtime.engine.reply import Chunk
from runtime.engine.stats import Stats
from runtime.models.registry import Pair
from runtime.sampling.sampler import Sampling
from runtime.speculative.control.controller import Controller
from runtime.speculative.control.costs import PassCosts
from runtime.speculative.control.explain import Explanation, Pass, explain

SECONDS = 0.01


class ScriptedEngine:
    """Answers the n-th request with the n-th reply, the last one again and again.

    A word is a token. After the first, every second one is the drafter's, when there is one. `[wait]` before a word
    holds the reply there until `go` is set or it is cancelled; `[fail]` fails; what follows `[tail]` comes with the
    last chunk, without a pass.
    """

    def __init__(self, *replies: str, drafter: str = "model", n_ctx: int = 256) -> None:
        self.pair = Pair("scripted", target=None)  # type: ignore[arg-type]
        self.n_ctx, self.replies, self.drafter = n_ctx, list(replies), drafter
        self.asked: list[tuple[Any, Sampling, int | None]] = []
        self.go, self.closed = threading.Event(), False
        self.fit, self.left_out, self.memory_level, self.given_up = "everything fits: it needs 1 MiB", "", "OK", ""
        self._stats = Stats()
        costs = PassCosts()
        for width, seconds in enumerate((10e-3, 12e-3, 14e-3, 30e-3), start=1):
            costs.set(width, seconds)
        self.controller = Controller(costs, {"model": 1e-3}, max_k=3)

    def reply(
        self, prompt: Sequence[Message] | Ids, sampling: Sampling, max_tokens: int | None = None,
        stops: Sequence[str] = (), cancel: Callable[[], bool] = lambda: False,
        on_prefill: Callable[[int, int], None] = lambda done, total: None, **more: Any,
    ) -> Iterator[Chunk]:  # fmt: skip
        self.asked.append((prompt if isinstance(prompt, Ids) else list(prompt), sampling, max_tokens))
        text = self.replies[min(len(self.asked), len(self.replies)) - 1]
        self._stats = Stats(prompt_n=7, plain_per_second=100.0)
        return self._run(text, max_tokens, cancel, on_prefill)

    def _run(
        self, text: str, max_tokens: int | None, cancel: Callable[[], bool], on_prefill: Callable[[int, int], None]
    ) -> Iterator[Chunk]:
        on_prefill(6, 6)
        text, _, tail = text.partition("[tail]")
        stats, reason, words = self._stats, "stop", text.replace("] ", "]").split(" ")
        while stats.predicted_n < len(words):
            at, word = stats.predicted_n, words[stats.predicted_n]
            if "[fail]" in word:
                raise ContextError("The prompt has 999 tokens, but the context holds 256. Shorten it.")
            if "[wait]" in word:
                while not (self.go.is_set() or cancel()):
                    self.go.wait(0.005)
            if cancel() or at == max_tokens:
                reason = "cancelled" if cancel() else "length"
                break
            yield self._pass(at, words[at : at + 2], 2 if max_tokens is None else max_tokens - at)
        if 2 * stats.drafters["none"] > stats.n_passes:
            stats.reason = self.controller.reason()
        yield Chunk(tail, pieces=(tail,), finish_reason=reason, stats=stats)

    def _pass(self, at: int, words: list[str], most: int) -> Chunk:
        """The drafter's word and the target's own, or only the latter."""
        stats, guessed = (
            self._stats,
            bool(at and self.drafter and most > 1 and len(words) == 2 and "[" not in "".join(words)),
        )
        pieces = tuple(" " * bool(at + i) + word.replace("[wait]", "") for i, word in enumerate(words[: 1 + guessed]))
        seconds = SECONDS * len(pieces)
        stats.decode_seconds += seconds
        drafter = self.drafter if guessed else "none"
        stats.steps.append(Pass(seconds, drafter, int(guessed), int(guessed), len(pieces)))
        return Chunk("".join(pieces), tuple(range(len(pieces))), (guessed, False)[: len(pieces)], pieces)

    def encode(self, prompt: Sequence[Message]) -> list[int]:
        """One token a word, by its length."""
        return [len(word) for message in prompt for word in message.content.split(" ")]

    def tokenize(self, text: str, *, special: bool = True) -> list[int]:
        return self.encode([Message("assistant", text)])

    def passes(self, first: int = 0) -> tuple[Pass, ...]:
        return tuple(self._stats.steps[first:])

    def explain(self) -> Explanation:
        return explain(self.controller, 0, self.controller.reason().text)

    def tend(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True
