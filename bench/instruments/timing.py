"""Interleaved runs, medians, a table and a JSON line: what every benchmark here shares."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of several runs, the least and the most."""

    median: float
    least: float
    most: float

    def __str__(self) -> str:
        return f"{self.median:.4g} ({self.least:.4g} to {self.most:.4g})"


def spread(values: list[float]) -> Spread:
    """Of some runs."""
    return Spread(statistics.median(values), min(values), max(values))


def interleaved(cases: dict[str, Callable[[], float]], runs: int = 7) -> dict[str, list[float]]:
    """Each case once per round, so that a busy moment hits all alike, and each round from another case on; the first
    only warms up.
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
    """Of runs made in the same rounds."""
    return spread([a / b for a, b in zip(over, under, strict=True)])


def machine() -> str:
    """The processor's name and the cores that may be used."""
    info = Path("/proc/cpuinfo")
    names = (
        [line.split(": ")[1] for line in info.read_text().splitlines() if line.startswith("model name")]
        if info.exists()
        else []
    )
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{names[0] if names else platform.processor()}, {cores} cores"


def report(title: str, columns: list[str], rows: list[list[str]], summary: dict[str, object]) -> None:
    """Prints the table, then `summary` as one JSON line."""
    table = Table(*columns, title=f"{title} ({machine()})")
    for row in rows:
        table.add_row(*row)
    Console(width=180).print(table)
    print(json.dumps({"bench": title, "machine": machine(), **summary}))
