"""Adaptive decoding against plain and against every fixed K, on planted pairs of a real shape: `python -m
bench.never_slower`.

A cell is a pair (acceptance dialled, the draft small or as slow as the target) and a temperature. In a round all ways
say the same text side by side, a pass of one after a pass of the other, so that a busy moment hits all alike; the next
round has another text. The ratio is of tokens per second of decoding. Rounds over all ways say which fixed choice is
best, further ones over plain, adaptive and that one give the ratios: so it is not the one that was lucky.

With `--learns`, drafts are EAGLE-3 heads that were learned from others (`learn = true`), and beside adaptive decoding a
process of the lowest priority computes between replies, as a training does.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from bench.instruments.learned import begin_training, plant_learned, rest
from bench.instruments.planted import MAX_WORDS, plant, prompts
from bench.instruments.shapes import SHAPES
from bench.instruments.timing import ratios, report
from bench.instruments.turns import rounds, side_by_side
from runtime.engine import Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.models.registry import Pair

KS = (1, 2, 3, 4, 6, 8)
FINALS = 5  # rounds of the finalists for each round over all ways
ADAPTIVE, PLAIN = "adaptive", "plain"
PLACES, FIRST_PLACES = (
    range(0, MAX_WORDS, 256),
    range(16),
)  # of the walk where replies begin; where it is to change while they are made


@dataclass(frozen=True, slots=True)
class Case:
    """A pair to plant."""

    name: str
    draft: str
    acceptance: float | tuple[float, float]


def cases(shape: str, change: int, learns: bool) -> list[Case]:
    """Acceptance from bad to good, one that collapses in mid-text, and a draft that can never pay."""
    small = [Case(f"accepted {share:.0%}", "10m", share) for share in (0.3, 0.5, 0.7, 0.9)]
    never = Case("never right", "10m", 0.0) if learns else Case("a draft as slow as the target, 90%", shape, 0.9)
    return [*small, Case(f"90%, after {change} tokens 10%", "10m", (0.9, 0.1)), never]


def planted(case: Case, shape: str, change: int, learns: bool, folder: Path) -> Pair:
    """The pair of a case, whose draft is a head that was learned, or a model."""
    pair = plant(folder, SHAPES[shape], SHAPES[case.draft], case.acceptance, change=change)
    return plant_learned(pair, SHAPES[shape], case.acceptance, change) if learns else pair


def rates(engines: Mapping[str, LoadedEngine], prompt: str, sampling: Sampling, n: int) -> dict[str, float]:
    """Tokens per second of decoding a reply of `n` tokens, by way."""
    replies = {name: engine.reply(prompt, sampling, n) for name, engine in engines.items()}
    return {name: stats.predicted_per_second for name, (_, stats) in side_by_side(replies).items()}


def measure(
    pair: Pair, asked: Sequence[str], temperature: float, args: argparse.Namespace
) -> tuple[str, dict[str, list[float]]]:
    """The best fixed way, plain decode included, and the rates of that, of plain and of adaptive decoding; a prompt and
    a seed per round.
    """
    ways = {PLAIN: Options(drafters=()), ADAPTIVE: Options(drafters=("model",))}
    ways |= {f"K = {k}": Options(drafters=("model",), fixed_k=k) for k in args.fixed}
    numbers = count()

    def measured(engines: Mapping[str, LoadedEngine]) -> dict[str, float]:
        if training:
            rest(adaptive, training)
        number = next(numbers)
        return rates(engines, asked[number % len(asked)], Sampling(temperature, seed=number), args.tokens)

    with ExitStack() as stack:
        engines = {
            name: stack.enter_context(closing(LoadedEngine(pair, options, learns=name == ADAPTIVE)))
            for name, options in ways.items()
        }
        adaptive = engines[ADAPTIVE]
        training = begin_training(adaptive) if pair.learn else None
        swept = rounds(lambda: measured(engines), args.runs)
        best = max(swept.keys() - {ADAPTIVE}, key=lambda name: ratios(swept[name], swept[PLAIN]).median)
        finalists = {name: engines[name] for name in engines if name in (PLAIN, ADAPTIVE, best)}
        return best, rounds(lambda: measured(finalists), FINALS * args.runs)


def cells(args: argparse.Namespace) -> Iterator[tuple[str, str, dict[str, list[float]]]]:
    """Every cell's name, the best fixed way there, and the rates."""
    change = args.tokens // 2
    for case in cases(args.shape, change, args.learns):
        with tempfile.TemporaryDirectory() as folder:
            pair = planted(case, args.shape, change, args.learns, Path(folder))
            asked = prompts(SHAPES[args.shape].vocab, PLACES if isinstance(case.acceptance, float) else FIRST_PLACES)
            for temperature in args.temperatures:
                yield f"{case.name}, t = {temperature}", *measure(pair, asked, temperature, args)


def main() -> None:
    """Wanted: adaptive / plain at least 0.98 in every cell, / the best fixed choice at least 0.95, in the geometric
    mean 1.0.
    """
    parser = argparse.ArgumentParser(description="Adaptive decoding against plain and fixed drafts on planted pairs.")
    parser.add_argument("--shape", choices=list(SHAPES), default="135m")
    parser.add_argument("--tokens", type=int, default=128, help="of a reply")
    parser.add_argument("--runs", type=int, default=2, help="rounds over all ways; of the finalists five times as many")
    parser.add_argument("--fixed", type=int, nargs="+", default=KS, help="draft lengths")
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 0.8])
    parser.add_argument("--learns", action="store_true", help="drafts are heads that were learned, and learn")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_DATA_HOME"] = folder  # what the user's own heads have learned is another matter
        compare(args)


def compare(args: argparse.Namespace) -> None:
    """Prints a row per cell, then the table."""
    rows, over_plain, over_best = [], list[float](), list[float]()
    for name, best, found in cells(args):
        plain, other = ratios(found[ADAPTIVE], found[PLAIN]), ratios(found[ADAPTIVE], found[best])
        over_plain.append(plain.median)
        over_best.append(other.median)
        rows.append([name, str(plain), f"{best}: {ratios(found[best], found[PLAIN])}", str(other)])
        print(" | ".join(rows[-1]), flush=True)
    summary = {
        "least / plain": min(over_plain),
        "least / best": min(over_best),
        "mean / best": statistics.geometric_mean(over_best),
    }
    columns = ["cell", "adaptive / plain", "best fixed / plain", "adaptive / best"]
    rounded: dict[str, object] = {name: round(value, 3) for name, value in summary.items()}
    report(f"never slower, {args.shape} planted{', heads that learn' * args.learns}", columns, rows, rounded)


if __name__ == "__main__":
    main()
