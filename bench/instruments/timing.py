"""Interleaved runs, replies that take turns, medians, a table and a JSON line: shared by every benchmark here.

Other load of the machine affects all that is interleaved alike: on a shared machine, ratios of the rates of successive
whole replies depend more on the machine than on the configurations.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from runtime.engine import Chunk
from runtime.engine.stats import Stats


@dataclass(frozen=True, slots=True)
class Spread:
    """The median, minimum and maximum of several runs."""

    median: float
    least: float
    most: float

    def __str__(self) -> str:
        return f"{self.median:.4g} ({self.least:.4g} to {self.most:.4g})"


def spread(values: list[float]) -> Spread:
    """Return the spread of some values."""
    return Spread(statistics.median(values), min(values), max(values))


def interleaved(cases: dict[str, Callable[[], float]], runs: int = 7) -> dict[str, list[float]]:
    """Run each case once per round, so that other load affects all alike, and each round from another case on.

    The first round only warms up.
    """
    results: dict[str, list[float]] = {name: [] for name in cases}
    names = list(cases)
    for number in range(runs + 1):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            value = cases[name]()
            if number:
                results[name].append(value)
    return results


def ratios(over: list[float], under: list[float]) -> Spread:
    """Return the spread of the ratios of runs in the same rounds."""
    return spread([a / b for a, b in zip(over, under, strict=True)])


def machine() -> str:
    """Return the processor's name and the number of usable cores."""
    info = Path("/proc/cpuinfo")
    names = (
        [line.split(": ")[1] for line in info.read_text().splitlines() if line.startswith("model name")]
        if info.exists()
        else []
    )
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{names[0] if names else platform.processor()}, {cores} cores"


def report(title: str, columns: list[str], rows: list[list[str]], summary: dict[str, object]) -> None:
    """Print the table, then `summary` as one JSON line."""
    table = Table(*columns, title=f"{title} ({machine()})")
    for row in rows:
        table.add_row(*row)
    Console(width=180).print(table)
    print(json.dumps({"bench": title, "machine": machine(), **summary}))


def side_by_side(replies: Mapping[str, Iterator[Chunk]]) -> dict[str, tuple[str, Stats]]:
    """Return text and numbers of each reply; they take turns until all have ended."""
    texts, done = dict.fromkeys(replies, ""), dict[str, tuple[str, Stats]]()
    while len(done) < len(replies):
        for name in [name for name in replies if name not in done]:
            chunk = next(replies[name])
            texts[name] += chunk.text
            if chunk.stats:
                done[name] = texts[name], chunk.stats
    return done


def rounds(measure: Callable[[], dict[str, float]], runs: int) -> dict[str, list[float]]:
    """Return the results of `measure` by name, in each round but the first, which only warms up."""
    found = [measure() for _ in range(runs + 1)][1:]
    return {name: [values[name] for values in found] for name in found[0]}
