"""A benchmark's results and the arithmetic on them: medians, ratios within a round, the best fixed setting. Also as
plain data for JSON.

Knows no engine and prints nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import geometric_mean, median
from typing import Any

from app.cli.bench_plan import ADAPTIVE, PLAIN, TEMPERATURES, Cell, Plan

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

    def share_of_best(self) -> float | None:
        """Return the geometric mean over the cells of adaptive decoding's speed relative to the best fixed setting."""
        spreads = [self.ratio(ADAPTIVE, self.best_fixed(cell), [cell]) for cell in self.cells]
        return geometric_mean([spread.median for spread in spreads if spread]) if any(spreads) else None

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


def tokens_per_second(samples: Iterable[TimedReply]) -> float:
    """Return the tokens per second over all samples together."""
    samples = list(samples)
    seconds = sum(sample.seconds for sample in samples)
    return sum(sample.n_tokens for sample in samples) / seconds if seconds else math.nan


def as_json(results: Results) -> dict[str, Any]:
    """Return the results as plain data: medians, and ratios of runs in the same round."""
    plain, share = results.costs.get(1), results.share_of_best()
    costs = {str(width): round(seconds / plain, 3) for width, seconds in results.costs.items()} if plain else {}
    return {
        "runs": results.plan.runs,
        "is_interrupted": results.is_interrupted,
        "compared": results.n_compared,
        "different": results.n_different,
        "different_by_rounding": results.n_rounded,
        "times_plain": number(results.ratio(ADAPTIVE, PLAIN, results.cells)),
        "times_best_fixed": None if share is None else round(share, 4),
        "cells": [cell_as_json(results, cell) for cell in results.cells],
        "pass_cost": costs,
        "acceptance_by_depth": {
            f"{drafter}, temperature {temperature:g}": [
                None if rate is None else round(rate, 4) for rate in results.acceptance(drafter, temperature)
            ]
            for drafter in results.plan.drafters
            for temperature in TEMPERATURES
        },
    }


def cell_as_json(results: Results, cell: Cell) -> dict[str, Any]:
    """Return one cell: tokens per second by configuration, and the ratios of adaptive decoding."""
    best = results.best_fixed(cell)
    speeds = {way.name: results.speed(way.name, [cell]) for way in results.plan.ways}
    return {
        "kind": cell.kind,
        "temperature": cell.temperature,
        "tokens_per_second": {name: number(speed) for name, speed in speeds.items() if speed},
        "times_plain": number(results.ratio(ADAPTIVE, PLAIN, [cell])),
        "best_fixed": best,
        "times_best_fixed": number(results.ratio(ADAPTIVE, best, [cell])),
    }


def number(spread: Spread | None) -> float | None:
    """Return the rounded median, or None."""
    return None if spread is None else round(spread.median, 4)
