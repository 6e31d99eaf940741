"""A benchmark's results in words and as plain data: headlines, rows of the table, the JSON object.

Knows results; prints nothing.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from app.bench.facts import Facts
from app.bench.plan import ADAPTIVE, PLAIN, TEMPERATURES, Cell
from app.bench.results import Results, Spread


@dataclass(frozen=True, slots=True)
class Headline:
    """A number and its meaning."""

    number: str
    text: str


@dataclass(frozen=True, slots=True)
class TableRow:
    """One configuration at one temperature."""

    way: str
    speed: str
    ratio: str
    by_kind: list[str]
    is_best: list[bool]  # whether it is the fastest, by kind


def headlines(results: Results) -> list[Headline]:
    """Return the main results."""
    found = [
        Headline(
            f"{n_odd(results):,}", f"of {results.n_compared:,} replies differ from plain decode's, token for token"
        )
    ]
    against = results.against_best()
    if (ratio := results.ratio(ADAPTIVE, PLAIN, results.cells)) and against and (share := results.share_of_best()):
        by_cell = {cell: spread.median for cell in results.cells if (spread := results.ratio(ADAPTIVE, PLAIN, [cell]))}
        least = min(by_cell, key=by_cell.__getitem__)
        found = [
            Headline(
                f"{ratio.median:.2f}",
                f"times plain decode on this machine ({ratio.least:.2f} to {ratio.most:.2f} by round)",
            ),
            Headline(f"{by_cell[least]:.2f}", f"times plain decode where speculation helped least: {least}"),
            Headline(f"{share:.2f}", "times the best fixed setting for each kind of text, chosen afterwards"),
            *found,
        ]
    elif plain := results.speed(PLAIN, results.cells):
        found.insert(0, Headline(f"{plain.median:.0f}", "tokens per second of plain decode on this machine"))
    return found


def n_odd(results: Results) -> int:
    """Return the number of replies that differ from plain decode's, with or without permission."""
    return results.n_different + results.n_rounded


def verdict(results: Results) -> str:
    """Return whether the texts are the same, and if not, what that means."""
    if results.n_different:
        return (
            f"{results.n_different} replies differ although only exact passes were used: this is a bug in "
            "Slipstream. Please report it."
        )
    if results.n_rounded:
        return (
            f"{results.n_rounded} replies differ, because passes of different widths round differently here "
            f"({results.exactness}) and `--fast` allows that. `--exact` prevents it on a CPU."
        )
    return "Every reply was the same as plain decode's."


def rows(results: Results, temperature: float) -> list[TableRow]:
    """Return a row for each configuration with results."""
    cells = [cell for cell in results.cells if cell.temperature == temperature]
    best = {cell: max_way(results, cell) for cell in cells}
    found = []
    for way in results.plan.ways:
        speed, ratio = results.speed(way.name, cells), results.ratio(way.name, PLAIN, cells)
        if speed and ratio:
            by_kind = [in_cell(results, way.name, cell) for cell in cells]
            found.append(
                TableRow(
                    way.name, f"{speed.median:.0f}", times(ratio), by_kind, [best[cell] == way.name for cell in cells]
                )
            )
    return found


def max_way(results: Results, cell: Cell) -> str:
    """Return the fastest configuration in a cell."""
    best = results.best_fixed(cell)
    adaptive = results.ratio(ADAPTIVE, best, [cell])
    return ADAPTIVE if adaptive and adaptive.median >= 1 else best


def in_cell(results: Results, way: str, cell: Cell) -> str:
    """Return the speed of plain decode, or the speed relative to it for the other configurations."""
    if way == PLAIN:
        speed = results.speed(way, [cell])
        return f"{speed.median:.0f} tok/s" if speed else ""
    ratio = results.ratio(way, PLAIN, [cell])
    return f"{ratio.median:.2f}" if ratio else ""


def times(ratio: Spread) -> str:
    """Return a ratio and its spread as text."""
    return "1" if ratio.least == ratio.most == 1 else f"{ratio.median:.2f} ({ratio.least:.2f} to {ratio.most:.2f})"


def kinds(results: Results, temperature: float) -> list[str]:
    """Return the columns of `by_kind`."""
    return [cell.kind for cell in results.cells if cell.temperature == temperature]


def as_json(results: Results, facts: Facts) -> dict[str, Any]:
    """Return the results as plain data: medians, and ratios of runs in the same round."""
    plain = results.costs.get(1)
    return {
        "bench": "slipstream",
        **asdict(facts),
        "runs": results.plan.runs,
        "is_interrupted": results.is_interrupted,
        "compared": results.n_compared,
        "different": results.n_different,
        "different_by_rounding": results.n_rounded,
        "times_plain": number(results.ratio(ADAPTIVE, PLAIN, results.cells)),
        "times_best_fixed": round(share, 4) if (share := results.share_of_best()) else None,
        "cells": [cell_as_json(results, cell) for cell in results.cells],
        "pass_cost": {str(width): round(seconds / plain, 3) for width, seconds in results.costs.items()}
        if plain
        else {},
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
    return {
        "kind": cell.kind,
        "temperature": cell.temperature,
        "tokens_per_second": {
            way.name: number(spread) for way in results.plan.ways if (spread := results.speed(way.name, [cell]))
        },
        "times_plain": number(results.ratio(ADAPTIVE, PLAIN, [cell])),
        "best_fixed": best,
        "times_best_fixed": number(results.ratio(ADAPTIVE, best, [cell])),
        "times_hindsight": round(ceiling, 4) if (ceiling := results.against_hindsight().get(cell)) else None,
    }


def number(spread: Spread | None) -> float | None:
    """Return the rounded median, or None."""
    return None if spread is None else round(spread.median, 4)
