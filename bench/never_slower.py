"""Adaptive decoding against plain and against every fixed K, on planted pairs of a real shape: `python -m bench.never_slower`.

A cell is a pair (acceptance dialled, the draft small or as slow as the target) and a temperature. In a round all ways say the same text side
by side, a pass of one after a pass of the other, so that a busy moment hits all alike; the ratio is of tokens per second of decoding. Rounds
over all ways say which fixed choice is best, further ones over plain, adaptive and that one give the ratios: so it is not the one that was lucky.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.planted import SHAPES, plant
from bench.timing import ratios, report
from bench.turns import rounds, side_by_side
from runtime.engine import Engine, Options, Sampling
from runtime.registry import Pair

KS = (1, 2, 3, 4, 6, 8)
FINALS = 4  # rounds of the finalists for each round over all ways
ADAPTIVE, PLAIN = "adaptive", "plain"
PROMPT = "Go on."


@dataclass(frozen=True, slots=True)
class Case:
    """A pair to plant."""

    name: str
    draft: str
    acceptance: float | tuple[float, float]


def cases(shape: str, change: int) -> list[Case]:
    """Acceptance from bad to good, one that collapses in mid-text, and a draft that can never pay."""
    small = [Case(f"accepted {share:.0%}", "10m", share) for share in (0.3, 0.5, 0.7, 0.9)]
    return [*small, Case(f"90%, after {change} tokens 10%", "10m", (0.9, 0.1)), Case("a draft as slow as the target, 90%", shape, 0.9)]


def rates(engines: Mapping[str, Engine], temperature: float, n: int) -> dict[str, float]:
    """Tokens per second of decoding a reply of `n` tokens, by way."""
    replies = {name: engine.reply(PROMPT, Sampling(temperature, seed=1), n) for name, engine in engines.items()}
    return {name: stats.predicted_per_second for name, (_, stats) in side_by_side(replies).items()}


def measure(pair: Pair, temperature: float, n: int, runs: int) -> tuple[str, dict[str, list[float]]]:
    """The best fixed way, plain decode included, and the rates of that, of plain and of adaptive decoding."""
    ways = {PLAIN: Options(drafters=()), ADAPTIVE: Options(drafters=("model",))}
    ways |= {f"K = {k}": Options(drafters=("model",), fixed_k=k) for k in KS}
    with ExitStack() as stack:
        engines = {name: stack.enter_context(closing(Engine(pair, options))) for name, options in ways.items()}
        swept = rounds(partial(rates, engines, temperature, n), runs)
        best = max(swept.keys() - {ADAPTIVE}, key=lambda name: statistics.median(swept[name]))
        finalists = {name: engines[name] for name in engines if name in (PLAIN, ADAPTIVE, best)}
        return best, rounds(partial(rates, finalists, temperature, n), FINALS * runs)


def cells(shape: str, n: int, runs: int) -> Iterator[tuple[str, str, dict[str, list[float]]]]:
    """Every cell's name, the best fixed way there, and the rates."""
    for case in cases(shape, n // 2):
        with tempfile.TemporaryDirectory() as folder:
            pair = plant(Path(folder), SHAPES[shape], SHAPES[case.draft], case.acceptance, change=n // 2)
            for temperature in (0.0, 0.8):
                yield f"{case.name}, t = {temperature}", *measure(pair, temperature, n, runs)


def main() -> None:
    """Wanted: adaptive / plain at least 0.98 in every cell, / the best fixed choice at least 0.95, in the geometric mean 1.0."""
    parser = argparse.ArgumentParser(description="Adaptive decoding against plain and fixed drafts on planted pairs.")
    parser.add_argument("--shape", choices=list(SHAPES), default="135m")
    parser.add_argument("--tokens", type=int, default=128, help="of a reply")
    parser.add_argument("--runs", type=int, default=2, help="rounds over all ways; of the finalists four times as many")
    args = parser.parse_args()
    rows, over_plain, over_best = [], list[float](), list[float]()
    for name, best, found in cells(args.shape, args.tokens, args.runs):
        plain, other = ratios(found[ADAPTIVE], found[PLAIN]), ratios(found[ADAPTIVE], found[best])
        over_plain.append(plain.median)
        over_best.append(other.median)
        rows.append([name, str(plain), f"{best}: {ratios(found[best], found[PLAIN])}", str(other)])
        print(" | ".join(rows[-1]), flush=True)
    summary = {"least / plain": min(over_plain), "least / best": min(over_best), "mean / best": statistics.geometric_mean(over_best)}
    columns = ["cell", "adaptive / plain", "best fixed / plain", "adaptive / best"]
    report(f"never slower, {args.shape} planted", columns, rows, {name: round(value, 3) for name, value in summary.items()})


if __name__ == "__main__":
    main()
