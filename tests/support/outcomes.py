"""All outcomes of what is drawn at random, each with its exact probability: for laws without sampling.

A rule is run again and again; wherever a random number decides, one run takes each side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast

from runtime.core.draft import Distribution
from runtime.sampling.sampler import Sampler
from runtime.sampling.settings import Sampling

T = TypeVar("T")
ALL = Sampling(1.0, top_k=0, top_p=1.0, min_p=0.0)  # the model's own distribution


@dataclass
class Run:
    """The choices of one run: those of `script` first, then the first possible one each time."""

    script: Sequence[int] = ()
    probability: float = 1.0
    choices: list[int] = field(default_factory=list)
    others: list[tuple[int, ...]] = field(default_factory=list)  # scripts of the runs that choose otherwise

    def choose(self, probs: Sequence[float]) -> int:
        """Return one of the choices with these probabilities; the impossible are left out."""
        possible = [i for i, p in enumerate(probs) if p > 0]
        if len(self.choices) < len(self.script):
            chosen = self.script[len(self.choices)]
        else:
            chosen = possible[0]
            self.others += [(*self.choices, other) for other in possible[1:]]
        self.choices.append(chosen)
        self.probability *= probs[chosen]
        return chosen


@dataclass
class Chance:
    """A random number from 0 to 1 of which only what it was compared with is known."""

    run: Run
    factor: float = 1.0
    known: list[float] = field(default_factory=lambda: [0.0, 1.0])  # between these; shared by its multiples

    def __mul__(self, factor: float) -> Chance:
        return Chance(self.run, self.factor * factor, self.known)

    def __lt__(self, bound: float) -> bool:
        low, high = self.known
        at = min(max(bound / self.factor, low), high)
        is_below = self.run.choose(((at - low) / (high - low), (high - at) / (high - low))) == 0
        self.known[:] = (low, at) if is_below else (at, high)
        return is_below


class OutcomesSampler(Sampler):
    """Draws what a run chooses."""

    def __init__(self, run: Run, sampling: Sampling = ALL) -> None:
        super().__init__(sampling)
        self.run = run
        self.rng.random = lambda: cast("float", Chance(run))  # type: ignore[method-assign]

    def draw(self, given: Distribution) -> int:
        """Return a token that the run chooses."""
        return int(given.ids[self.run.choose(given.probs.tolist())])


def outcomes(draw: Callable[[OutcomesSampler], T], sampling: Sampling = ALL) -> Iterator[tuple[T, float]]:
    """Yield each result of `draw`, once for each way to it, and the way's probability."""
    scripts: list[tuple[int, ...]] = [()]
    while scripts:
        run = Run(scripts.pop())
        result = draw(OutcomesSampler(run, sampling))
        scripts += run.others
        yield result, run.probability
