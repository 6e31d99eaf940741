"""A benchmark's results and the arithmetic on them: medians, ratios within a round, the best fixed setting.

Knows no engine and prints nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import geometric_mean, median

from app.bench.plan import ADAPTIVE, PLAIN, Cell, Plan

Step = tuple[float, str, int, int]  # seconds, drafter, tokens drafted, tokens accepted


@dataclass(frozen=True, slots=True)
class TimedReply:
    """The measurements of one reply, without its text."""

    way: str
    cell: Cell
    prompt: int  # index among the kind's prompts
    round: int
    n_tokens: int
    seconds: float  # of decoding, without the prefill
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Spread:
    """The median, the least and the most of several rounds."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread | None:
        """Return the spread of the values, or None without values."""
        return cls(median(values), min(values), max(values)) if values else None


@dataclass(slots=True)
class Results:
    """All measurements, in order."""

    plan: Plan
    samples: list[TimedReply] = field(default_factory=list)
    n_compared: int = 0  # replies compared with plain decode's, token by token
    n_different: int = 0  # differing replies with exact kernels: each is a bug
    n_rounded: int = 0  # differing replies where rounding depends on the width
    costs: dict[int, float] = field(default_factory=dict)  # width -> seconds of a pass
    exactness: str = ""
    is_interrupted: bool = False

    def speed(self, way: str, cells: Iterable[Cell]) -> Spread | None:
        """Return the tokens per second over those cells, by round."""
        rounds = self._rounds(way, cells)
        return Spread.of([tokens_per_second(samples.values()) for samples in rounds.values()])

    def ratio(self, way: str, other: str, cells: Iterable[Cell]) -> Spread | None:
        """Return the speed relative to another configuration, by round, over the prompts that both replied to."""
        cells, ratios = list(cells), []
        ours, theirs = self._rounds(way, cells), self._rounds(other, cells)
        for number in ours.keys() & theirs.keys():
            if both := ours[number].keys() & theirs[number].keys():
                over, under = (
                    tokens_per_second([samples[key] for key in both]) for samples in (ours[number], theirs[number])
                )
                ratios.append(over / under)
        return Spread.of(ratios)

    def _rounds(self, way: str, cells: Iterable[Cell]) -> dict[int, dict[tuple[Cell, int], TimedReply]]:
        """Return the replies by round, and by cell and prompt."""
        wanted, rounds = set(cells), dict[int, dict[tuple[Cell, int], TimedReply]]()
        for sample in self.samples:
            if sample.way == way and sample.cell in wanted:
                rounds.setdefault(sample.round, {})[sample.cell, sample.prompt] = sample
        return rounds

    @property
    def cells(self) -> list[Cell]:
        """The cells with results."""
        known = {sample.cell for sample in self.samples}
        return [cell for cell in self.plan.cells if cell in known]

    def best_fixed(self, cell: Cell) -> str:
        """Return the fastest fixed setting for the cell, chosen afterwards: plain, or a drafter at a fixed K."""
        settings = [way.name for way in self.plan.ways if way.name != ADAPTIVE]
        medians = {name: spread.median for name in settings if (spread := self.ratio(name, PLAIN, [cell]))}
        return max(medians, key=medians.__getitem__, default=PLAIN)

    def against_best(self) -> dict[Cell, Spread]:
        """Return the speed of adaptive decoding relative to the best fixed setting, by cell."""
        found = {cell: self.ratio(ADAPTIVE, self.best_fixed(cell), [cell]) for cell in self.cells}
        return {cell: spread for cell, spread in found.items() if spread}

    def share_of_best(self) -> float | None:
        """Return the geometric mean over the cells of `against_best`."""
        ratios = [spread.median for spread in self.against_best().values()]
        return geometric_mean(ratios) if ratios else None

    def against_hindsight(self) -> dict[Cell, float]:
        """Return the speed of adaptive decoding relative to the ceiling from the fixed settings' replies, by cell."""
        found = dict[Cell, float]()
        for cell in self.cells:
            replies = self._replies(cell)
            ceilings = {prompt: self._ceiling(replies, prompt) for way, prompt in replies if way == ADAPTIVE}
            taken = sum(median(sample.seconds for sample in replies[ADAPTIVE, prompt]) for prompt in ceilings)
            if taken and all(ceilings.values()):
                found[cell] = sum(ceilings.values()) / taken
        return found

    def _replies(self, cell: Cell) -> dict[tuple[str, int], list[TimedReply]]:
        """Return a cell's replies by configuration and prompt."""
        replies = dict[tuple[str, int], list[TimedReply]]()
        for sample in self.samples:
            if sample.cell == cell:
                replies.setdefault((sample.way, sample.prompt), []).append(sample)
        return replies

    def _ceiling(self, replies: dict[tuple[str, int], list[TimedReply]], prompt: int) -> float:
        """Return the least possible seconds for a prompt's reply. 0 without a reply of plain decode."""
        plain = replies.get((PLAIN, prompt), [])
        n, guessers = plain[0].n_tokens if plain else 0, list[Guesser]()
        for drafter in self.plan.drafters:
            ways = [way.name for way in self.plan.ways if way.drafters == (drafter,)]
            steps = [sample.steps for way in ways for sample in replies.get((way, prompt), [])]
            guessers.append(Guesser(right_at(n, steps), seconds_by_length(step for each in steps for step in each)))
        return (
            shortest(n, seconds_by_length(step for sample in plain for step in sample.steps)[0], guessers)
            if plain
            else 0.0
        )

    def acceptance(self, drafter: str, temperature: float) -> list[float | None]:
        """Return the acceptance rate by depth, given that all tokens before were accepted.

        From the longest fixed drafts.
        """
        name = next(way.name for way in reversed(self.plan.ways) if way.drafters == (drafter,))
        tried, accepted = Counter[int](), Counter[int]()
        for sample in self.samples:
            if sample.way == name and sample.cell.temperature == temperature:
                for _, _, n_drafted, n_accepted in sample.steps:
                    tried.update(range(min(n_accepted + 1, n_drafted)))
                    accepted.update(range(n_accepted))
        return [accepted[depth] / tried[depth] if tried[depth] else None for depth in range(max(self.plan.ks))]

    def lengths(self, kind: str) -> list[tuple[int, int]]:
        """Return (tokens generated before, tokens drafted) by pass of adaptive decoding, in the newest greedy reply to
        the kind's first prompt.
        """
        of_kind = [
            sample
            for sample in self.samples
            if (sample.way, sample.cell, sample.prompt) == (ADAPTIVE, Cell(kind, 0.0), 0)
        ]
        points, n = list[tuple[int, int]](), 0
        for _, _, n_drafted, n_accepted in of_kind[-1].steps if of_kind else ():
            points.append((n, n_drafted))
            n += n_accepted + 1
        return points


def tokens_per_second(samples: Iterable[TimedReply]) -> float:
    """Return the tokens per second over all samples together."""
    samples = list(samples)
    seconds = sum(sample.seconds for sample in samples)
    return sum(sample.n_tokens for sample in samples) / seconds if seconds else math.nan


@dataclass(frozen=True, slots=True)
class Guesser:
    """One drafter in one reply: the number of its correct tokens at each position, and the seconds of a step by tokens
    drafted.
    """

    right: Sequence[int]
    seconds: Mapping[int, float]


def shortest(n: int, plain: float, guessers: Iterable[Guesser]) -> float:
    """Return the least seconds for `n` tokens, with a plain step taking `plain`. Dynamic programming from the end
    chooses the best drafter and draft length at every position.
    """
    guessers, left = list(guessers), [0.0] * (n + 1)
    for place in reversed(range(n)):
        ways = [plain + left[place + 1]]
        for each in guessers:
            ways += [
                seconds + left[min(n, place + 1 + min(k, each.right[place]))] for k, seconds in each.seconds.items()
            ]
        left[place] = min(ways)
    return left[0]


def right_at(n: int, replies: Iterable[Sequence[Step]]) -> list[int]:
    """Return the number of correct draft tokens from each of `n` positions on, the most over all replies, which have
    the same text.
    """
    right = [0] * n
    for steps in replies:
        place = 0
        for *_, n_accepted in steps:
            for i in range(min(n_accepted, n - place)):
                right[place + i] = max(right[place + i], n_accepted - i)
            place += n_accepted + 1
    return right


def seconds_by_length(steps: Iterable[Step]) -> dict[int, float]:
    """Return the median seconds of a step by tokens drafted."""
    taken: dict[int, list[float]] = {}
    for seconds, _, n_drafted, _ in steps:
        taken.setdefault(n_drafted, []).append(seconds)
    return {k: median(times) for k, times in taken.items()}
