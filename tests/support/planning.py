"""A scheduler over sequences whose lengths, caches and costs a test decides; no model is asked."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from runtime.core.draft import Adapters, Tokens
from runtime.core.limits import UNLIMITED, Limits
from runtime.engine.binding import Binding
from runtime.engine.engine import Ask
from runtime.engine.scheduler import Scheduler
from runtime.engine.sequence import Batch, Sequence
from runtime.loading.exactness import Exactness
from runtime.sampling.sampler import Sampler
from runtime.sampling.settings import Sampling
from runtime.speculative.control.controller import Controller
from runtime.speculative.control.costs import PassCosts
from runtime.speculative.step import widths_of
from runtime.speculative.target import Sharing, TargetPasses
from tests.support.toy_engine import ToyVocab

GREEDY, FREE = Sampling(temperature=0.0, seed=1), Sampling(temperature=1.0)
EXACT, BLURRED = Exactness(8, 8), Exactness(4, 8)


class Cache:
    """A cache that holds what a test says of each sequence, by its first token."""

    n_ctx = 2000

    def __init__(self, n_cells: int = 2000, slots: int = 9) -> None:
        self.n_cells, self.slots, self.held = n_cells, slots, dict[int, int]()

    def fits(self, lengths: Iterable[int]) -> bool:
        return sum(lengths) <= self.n_cells

    def use(self, adapters: Adapters) -> None:
        pass

    def n_cached(self, context: Tokens, exact: bool = True) -> int:
        return min(self.held.get(int(context[0]), 0), len(context) - 1)


class Setting:
    """A scheduler, and the sequences that a test gave it, by number."""

    def __init__(
        self,
        exact_rows: int = sys.maxsize,
        shares: bool = True,
        limits: Limits = UNLIMITED,
        pieces: bool = False,
        **target: int,
    ) -> None:
        self.target = Cache(**target)
        costs = PassCosts()
        for rows in range(1, 12):
            costs.set(rows, 1 + 0.01 * rows)
        self.decoder: Any = SimpleNamespace(
            target=TargetPasses(self.target, exact_rows, Sharing(self.target, exact_rows) if shares else None),  # type: ignore[arg-type]
            controller=Controller(costs, {}, max_k=2),
            drafting=SimpleNamespace(switch_seconds=0.1),
        )
        self.exactness = replace(BLURRED, pieces=pieces) if exact_rows < sys.maxsize else EXACT
        self.pass_seconds, self.row_seconds = 0.01, 1e-5  # what a pass takes, and more for each prompt token
        self.scheduler = Scheduler(self.decoder, self.target, limits)  # type: ignore[arg-type]
        self.decoder.controller.passes.joint.learn_read(10, 0.2)
        self.scheduler._prompts._row_seconds = self.row_seconds

    def add(
        self, number: int, n: int, n_cached: int = 0, sampling: Sampling = GREEDY, n_said: int = 0, **request: Any
    ) -> Sequence:
        """A sequence with a prompt of `n` tokens of which so many are cached; its reply has `n_said`."""
        window: Any = SimpleNamespace(n_ctx=2000, notice="")
        sampler, vocab = Sampler(sampling), ToyVocab()
        binding = Binding(sampler, self.exactness, widths_of(sampler), vocab.pieces, vocab.ends)
        ask = Ask("", sampling, reply_tokens=(1,) * n_said, **request)
        sequence = Sequence(number, ask, [number] * n, window, binding)
        self.target.held[number] = n_cached
        sequence.n_read = min(n_cached, n + n_said - 1)
        self.scheduler.add(sequence)
        for each in self.scheduler.admitted():
            self.scheduler.run(each)
        return sequence

    def speaking(self, number: int, n: int = 10, sampling: Sampling = GREEDY) -> Sequence:
        """One that is well under way."""
        return self.add(number, n, n + 1, sampling, n_said=2)

    def seconds(self, batch: Batch) -> float:
        """What a pass takes."""
        return self.pass_seconds + self.row_seconds * sum(batch.n_rows.values())

    def plan(self) -> tuple[list[int], list[int], list[tuple[int, int]]]:
        """Numbers of those that decode, what is read of their prompts, and prompts that are read up to where."""
        return told(self.scheduler.plan())

    def passed(self) -> tuple[list[int], list[int], list[tuple[int, int]]]:
        """The same, of a pass that is made."""
        batch = self.scheduler.plan()
        found = told(batch)
        self.make(batch)
        return found

    def make(self, batch: Batch) -> None:
        """A pass is made, and each that decodes says a token."""
        if self.scheduler.holds_one:
            self.target.held = {each: n for each, n in self.target.held.items() if each == batch.sequences[0].number}
        for each, _, end in batch.reading:
            self.target.held[each.number] = end
        self.scheduler.record(batch, self.seconds(batch))
        for each, _ in batch.decoding:
            self.target.held[each.number] = each.buffer.n
            each.buffer.append(1)
            each.n_read = each.buffer.n - 1


def told(batch: Batch) -> tuple[list[int], list[int], list[tuple[int, int]]]:
    decoding, n_unread = [each.number for each, _ in batch.decoding], [n for _, n in batch.decoding]
    return decoding, n_unread, [(each.number, end) for each, _, end in batch.reading]
