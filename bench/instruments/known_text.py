"""Known replies that a scripted target generates again, token by token, so that no model runs.

Drafters, controller and verification are the real ones. Passes take scripted times, so results do not depend on the
machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

import numpy as np

from bench.instruments.toy import ToyBackend, one_step
from runtime.core.draft import NO_DRAFT, Draft, Logits, Tokens
from runtime.core.drafter import Drafter, traits_of
from runtime.sampling.sampler import Sampler
from runtime.sampling.settings import Sampling
from runtime.speculative.control.controller import Controller
from runtime.speculative.control.costs import PassCosts
from runtime.speculative.control.passes import PassTime
from runtime.speculative.decoder import Decoder
from runtime.speculative.step import DraftingState, Widths
from runtime.speculative.target import TargetPasses

MAX_DRAFT = 31  # maximal tokens of a draft
TICK = 1.5e-5  # seconds between two looks at the clock


@dataclass(frozen=True, slots=True)
class Machine:
    """Seconds of passes by number of rows, the rows up to which they round alike, how much times vary (the standard
    deviation of their logarithm), and what a plain pass takes longer after a wider one.
    """

    seconds: Mapping[int, float]
    exact_rows: int = 3
    spread: float = 0.0
    after: float = 0.0

    @property
    def costs(self) -> PassCosts:
        """The costs as measured at load."""
        costs = PassCosts()
        for rows, seconds in self.seconds.items():
            costs.set(rows, seconds)
        costs.set_after(self.after)
        return costs

    def decoder(self, drafter: Drafter) -> Decoder:
        """Return a decoder with these costs and no target yet."""
        controller = Controller(self.costs, {drafter.name: traits_of(drafter, 1e-5)}, MAX_DRAFT)
        ticks = count()
        controller.passes.clock = lambda: TICK * next(ticks)
        controller.passes.set_clock = lambda: None  # type: ignore[method-assign]
        return Decoder(TargetPasses(ToyBackend(), self.exact_rows), [drafter], controller)


class KnownText(ToyBackend):
    """A target that generates a known reply [n] to a prompt of `n_prompt` tokens."""

    def __init__(self, n_prompt: int, reply: Tokens, n_vocab: int) -> None:
        self.n_prompt, self.reply, self.n_vocab, self.n_rows, self.seconds = n_prompt, reply, n_vocab, 0, 0.0
        self.n_ctx = self.n_rewindable = 1 << 20

    def forward(self, context: Tokens, draft: Draft = NO_DRAFT, exact: bool = True) -> Logits:
        """Return rows [1 + len(draft), n_vocab] in which the next tokens of the reply are the likeliest."""
        first, self.n_rows = len(context) - self.n_prompt, 1 + len(draft)
        logits = np.zeros((self.n_rows, self.n_vocab), dtype=np.float32)
        following = self.reply[first : first + self.n_rows]
        logits[np.arange(len(following)), following] = 1.0
        return logits


class Copied(NamedTuple):
    """The results of a reply: tokens of the reply, draft tokens proposed and accepted, passes, and the speed relative
    to plain decode.
    """

    n: int
    n_drafted: int
    n_accepted: int
    n_passes: int
    times: float

    @property
    def share(self) -> float:
        """The acceptance rate."""
        return self.n_accepted / max(1, self.n_drafted)

    @property
    def cells(self) -> list[str]:
        """The numbers of a row."""
        return [f"{self.share:.0%}", f"{self.n / self.n_passes:.1f}", f"{self.times:.2f}"]


def timed_as(
    target: KnownText, machine: Machine, rng: np.random.Generator
) -> Callable[[Callable[[], Logits]], tuple[Logits, PassTime]]:
    """Return a function that runs a pass and reports the time that it takes on this machine."""
    costs = machine.costs.up_to(MAX_DRAFT + 1, 0)

    def make(passed: Callable[[], Logits]) -> tuple[Logits, PassTime]:
        n_before, logits = target.n_rows, passed()
        usual = costs[target.n_rows - 1] + machine.after * (target.n_rows == 1 < n_before)
        seconds = usual * float(np.exp(rng.normal(0, machine.spread)))
        target.seconds += seconds
        return logits, PassTime(seconds, 2.0)

    return make


def copied(
    decoder: Decoder,
    machine: Machine,
    prompt: Sequence[int],
    reply: Sequence[int],
    expected: Sequence[int] = (),
    seed: int = 0,
) -> Copied:
    """Return the results of a reply at temperature 0 without a seed, which is `expected`; `seed` is of the times."""
    ids = {token: i for i, token in enumerate(dict.fromkeys([*prompt, *reply]))}
    text = np.array([ids[token] for token in (*prompt, *reply)], dtype=np.int32)
    decoder.target.backend = target = KnownText(len(prompt), text[len(prompt) :], len(ids))
    decoder.controller.passes.time = timed_as(target, machine, np.random.default_rng(seed))  # type: ignore[method-assign,assignment]
    state, sampler, n = DraftingState(256, widths=Widths.PREFER_EXACT), Sampler(Sampling(temperature=0)), len(prompt)
    while not decoder.begin(state, text[:n], [ids[token] for token in expected if token in ids]):
        pass
    steps = []
    while n < len(text):
        steps.append(one_step(decoder, text[:n], sampler, n - len(prompt), len(text) - n, state))
        n += len(steps[-1].tokens)
    drafted, accepted = (sum(each) for each in zip(*[(step.n_drafted, step.n_accepted) for step in steps], strict=True))
    return Copied(len(reply), drafted, accepted, len(steps), len(reply) * machine.seconds[1] / target.seconds)
