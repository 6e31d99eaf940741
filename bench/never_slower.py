"""Adaptive decoding against plain decode and against every fixed K, on planted pairs of a real shape.

Usage: `python -m bench.never_slower`. A cell is a pair (of a chosen acceptance rate, with a draft model that is small
or as slow as the target) and a temperature. In a round all configurations generate the same text side by side, one pass
each in turn, so that other load affects all equally; the next round has another text. The ratio is of tokens per second
of decoding. Rounds over all configurations find the best fixed one. Further rounds over plain, adaptive and that one
give the ratios, so that the best one is not a lucky one.

With `--learns`, drafters are EAGLE-3 heads that were learned from others (`learn = true`), and a process of the lowest
priority computes between replies of adaptive decoding, as a training does.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from bench.instruments.planted import MAX_WORDS, plant, prompts
from bench.instruments.planted_heads import plant_eagle
from bench.instruments.shapes import SHAPES, Shape
from bench.instruments.timing import ratios, report, rounds, side_by_side
from runtime.engine import Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.models.registry import Pair
from runtime.training import learned_head
from runtime.training.learned_head import Measured
from runtime.training.place import place_of
from runtime.training.training_process import TrainerProcess

KS = (1, 2, 3, 4, 6, 8)
FINALS = 5  # rounds of the finalists for each round over all configurations
ADAPTIVE, PLAIN = "adaptive", "plain"
PLACES, FIRST_PLACES = (
    range(0, MAX_WORDS, 256),
    range(16),
)  # places of the walk where replies begin; the second for an acceptance rate that changes within a reply


@dataclass(frozen=True, slots=True)
class Case:
    """A pair to plant."""

    name: str
    draft: str
    acceptance: float | tuple[float, float]


def cases(shape: str, change: int, learns: bool) -> list[Case]:
    """Return cases with acceptance rates from bad to good, one that collapses within the text, and a draft that can
    never pay.
    """
    small = [Case(f"accepted {share:.0%}", "10m", share) for share in (0.3, 0.5, 0.7, 0.9)]
    never = Case("never right", "10m", 0.0) if learns else Case("a draft as slow as the target, 90%", shape, 0.9)
    return [*small, Case(f"90%, after {change} tokens 10%", "10m", (0.9, 0.1)), never]


def planted(case: Case, shape: str, change: int, learns: bool, folder: Path) -> Pair:
    """Return the pair of a case, whose draft is a learned head, or a model."""
    pair = plant(folder, SHAPES[shape], SHAPES[case.draft], case.acceptance, change=change)
    return plant_learned(pair, SHAPES[shape], case.acceptance, change) if learns else pair


def rates(engines: Mapping[str, LoadedEngine], prompt: str, sampling: Sampling, n: int) -> dict[str, float]:
    """Return the tokens per second of decoding a reply of `n` tokens, by configuration."""
    replies = {name: engine.reply(prompt, sampling, n) for name, engine in engines.items()}
    return {name: stats.predicted_per_second for name, (_, stats) in side_by_side(replies).items()}


def measure(
    pair: Pair, asked: Sequence[str], temperature: float, args: argparse.Namespace
) -> tuple[str, dict[str, list[float]]]:
    """Return the best fixed configuration, plain decode included, and the rates of it, of plain and of adaptive
    decoding; each round has another prompt and seed.
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
    """Yield every cell's name, its best fixed configuration, and the rates."""
    change = args.tokens // 2
    for case in cases(args.shape, change, args.learns):
        with tempfile.TemporaryDirectory() as folder:
            pair = planted(case, args.shape, change, args.learns, Path(folder))
            asked = prompts(SHAPES[args.shape].vocab, PLACES if isinstance(case.acceptance, float) else FIRST_PLACES)
            for temperature in args.temperatures:
                yield f"{case.name}, t = {temperature}", *measure(pair, asked, temperature, args)


IDLE = 0.3  # seconds of training between two replies


def plant_learned(pair: Pair, shape: Shape, acceptance: float | tuple[float, float], change: int) -> Pair:
    """Return the planted pair with a head that is never right instead of the draft model, and a head learned from it
    with that acceptance, as in `plant`.

    The target must have that shape.
    """
    original = plant_eagle(pair, shape, 0.0)
    found = plant_eagle(pair, shape, acceptance, change=change, name="learned")
    assert original.draft is not None
    assert found.draft is not None
    place = place_of(original.target, original.draft)
    place.make({"target": str(original.target), "head": str(original.draft)})
    new = Path(shutil.move(found.draft, place.work / "new.gguf"))
    learned_head.take(place, new, Measured(0.0, 1.0, 1, 0.0), 1, "")
    return replace(original, learn=True, name=pair.name)


def begin_training(engine: LoadedEngine) -> TrainerProcess:
    """Start a process that computes without end in place of trainings; it is paused until `rest`, and during every
    reply.

    Raises SystemExit if the engine's head does not learn.
    """
    if engine._learner is None:
        raise SystemExit(f"The head does not learn here: {engine.status.learning}.")
    training = engine._learner._training = TrainerProcess("bench.instruments.processes")
    training.start()
    training.hold()
    return training


def rest(engine: LoadedEngine, training: TrainerProcess) -> None:
    """Run the work between two replies: store the rejected tokens, and let the training compute for a moment."""
    engine.tend()
    training.resume()
    time.sleep(IDLE)


def main() -> None:
    """Goals: adaptive / plain at least 0.98 in every cell; adaptive / best fixed at least 0.95, with a geometric mean
    of 1.0.
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
        os.environ["XDG_DATA_HOME"] = folder  # not the user's own learned heads
        compare(args)


def compare(args: argparse.Namespace) -> None:
    """Print a row per cell, then the table."""
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
