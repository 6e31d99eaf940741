"""Replays traces of acceptance through the controller, without a model or a clock.

Usage: `python -m bench.simulate [TRACE.json ...]`. A trace has for every position of a text the drafter's confidence in
its token there and whether the target agrees. The controller is compared with four references: plain decode, the best
fixed K, a clairvoyant that knows the probability of acceptance of each token but not the outcome, and the hindsight
ceiling that knows the outcomes. All times are the trace's own. Traces are synthetic, or recorded by `record`.
`--ablate` measures each heuristic instead: docs/controller.md has the table.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path

import numpy as np

from bench.instruments.heuristics import (
    HEURISTICS,
    halved_and_doubled,
    recorded_seconds,
    report_changes,
    synthetic_seconds,
)
from bench.instruments.texts import questions
from bench.instruments.timing import report
from bench.instruments.traces import MAX_K, NAME, Trace, World, fixed
from bench.instruments.worlds import made_up_worlds, together, worlds
from runtime.engine import Message, Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.models.registry import Pair, load_registry
from runtime.sampling.sampler import Sampler
from runtime.speculative.control.tuning import TUNING


def best_length(chances: Sequence[float], pass_seconds: Sequence[float], rate: float) -> int:
    """Return the most valuable length of a draft with these probabilities, at a cost of `rate` tokens per second."""
    best, most, survival, gain = 0, 0.0, 1.0, 0.0
    for k, chance in enumerate(chances[: len(pass_seconds) - 1], start=1):
        survival *= chance
        gain += survival
        value = gain - rate * (pass_seconds[k] - pass_seconds[0])
        if value > most:
            best, most = k, value
    return best


def clairvoyant(trace: Trace) -> float:
    """Return the seconds with known probabilities, but not outcomes, of the next tokens: the best length at the rate
    that this policy itself attains.
    """
    rate, total = 1 / trace.passes[0], trace.plain_seconds
    for _ in range(8):
        place, total = 0, 0.0
        lengths = [trace.step_seconds(k, k) for k in range(len(trace.passes))]
        while place < len(trace.agrees):
            k = best_length(trace.chances[place : place + MAX_K], lengths, rate)
            total += lengths[k]
            place += 1 + min(k, trace.run(place))
        rate = len(trace.agrees) / total
    return total


def hindsight(trace: Trace) -> float:
    """Return the seconds with every outcome known: the shortest path through the text."""
    n = len(trace.agrees)
    left = [0.0] * (n + MAX_K + 2)
    for place in range(n - 1, -1, -1):
        right = trace.run(place)
        left[place] = min(trace.step_seconds(k, k) + left[place + 1 + k] for k in range(right + 1))
    return left[0]


def estimated(trace: Trace) -> Trace:
    """Return a recorded trace with probabilities estimated from the outcomes of similar confidences."""
    edges = np.quantile(trace.confidences, np.linspace(0, 1, 11)[1:-1])
    which = np.searchsorted(edges, trace.confidences, side="right")
    agrees = np.array(trace.agrees)
    means = np.array([agrees[which == i].mean() if (which == i).any() else 0.0 for i in range(10)])
    return replace(trace, chances=means[which].tolist())


def recorded(path: Path) -> Trace:
    """Return a trace that `record` wrote."""
    return estimated(Trace(**json.loads(path.read_text(encoding="utf8"))))


def record(pair: Pair, prompts: Sequence[str], most: int = 100) -> Trace:
    """Record plain greedy replies with the draft model's agreement at each token; costs are measured here."""
    engine = LoadedEngine(pair, Options(drafters=(NAME,)))
    if not engine.decoder.active.drafters:
        engine.close()
        raise SystemExit(f"Nothing to record: {engine.facts.left_out}.")
    for prompt in prompts[:8]:  # the costs of passes and drafts are learned by use
        list(engine.reply([Message("user", prompt)], Sampling(temperature=0), most))
    controller, backend = engine.decoder.controller, engine.decoder.active.drafters[0].backend  # type: ignore[attr-defined]
    known, sampler = controller.states[NAME], Sampler(Sampling(temperature=0))
    confidences, agrees = list[float](), list[bool]()
    for prompt in prompts:
        ids = engine.encode([Message("user", prompt)])
        tokens = [
            token
            for chunk in engine.reply([Message("user", prompt)], Sampling(temperature=0), most)
            for token in chunk.tokens
        ]
        for i, token in enumerate(tokens):
            pick = sampler.pick(backend.forward(np.array(ids + tokens[:i], dtype=np.int32))[0])
            confidences.append(pick.confidence)
            agrees.append(pick.token == token)
    passes = controller.passes.costs.up_to(MAX_K + 1, 0)
    engine.close()
    return Trace(pair.name, confidences, [], agrees, passes, known.times.first, known.times.rest)


def compare(worlds: Sequence[World]) -> dict[str, float]:
    """Return the controller's tokens per second over those of each reference, summed over similar worlds."""
    ours, traces = sum(world.lived() for world in worlds), [trace for world in worlds for trace in world.traces]
    best_fixed = min(sum(fixed(trace, k) for trace in traces) for k in range(MAX_K + 1))
    return {
        "plain": sum(trace.plain_seconds for trace in traces) / ours,
        "best fixed": best_fixed / ours,
        "clairvoyant": sum(clairvoyant(trace) for trace in traces) / ours,
        "hindsight": sum(hindsight(trace) for trace in traces) / ours,
    }


def main() -> None:
    """Print a row per trace, then the minimum and the geometric mean, then concurrent replies."""
    parser = argparse.ArgumentParser(description="Replay traces of acceptance through the controller.")
    parser.add_argument("traces", nargs="*", type=Path, help="recorded traces; without any, made-up ones")
    parser.add_argument("--record", type=Path, help="write a trace of the bundled pair here first")
    parser.add_argument("--target", type=Path, help="a model file, to record that with `--draft` instead")
    parser.add_argument("--draft", type=Path, help="its draft model")
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--ablate", action="store_true", help="the same without each heuristic of the controller")
    parser.add_argument("--sweep", action="store_true", help="the same with each number halved and doubled")
    args = parser.parse_args()
    if args.ablate or args.sweep:
        traces = [recorded(path) for path in args.traces]
        measure = partial(recorded_seconds, traces) if traces else partial(synthetic_seconds, args.tokens, args.seeds)
        report_changes(HEURISTICS if args.ablate else each_changed(), measure)
        return
    if args.record:
        pair = load_registry()["demo"]
        if args.target:
            pair = replace(pair, name=args.target.stem, target=args.target, draft=args.draft)
        args.record.write_text(json.dumps(asdict(record(pair, questions()))), encoding="utf8")
        args.traces.append(args.record)
    if args.traces:
        cells = {path.stem: [World(path.stem, [recorded(path)])] for path in args.traces}
    else:
        seeded = [[*made_up_worlds(args.tokens, seed), *worlds(args.tokens, seed)] for seed in range(args.seeds)]
        cells = {alike[0].name: list(alike) for alike in zip(*seeded, strict=True)}
    results = {name: compare(traces) for name, traces in cells.items()}
    columns = list(next(iter(results.values())))
    rows = [[name, *(f"{result[column]:.3f}" for column in columns)] for name, result in results.items()]
    least = {column: min(result[column] for result in results.values()) for column in columns}
    mean = {column: statistics.geometric_mean(result[column] for result in results.values()) for column in columns}
    for what, values in (("least", least), ("geometric mean", mean)):
        rows.append([what, *(f"{values[column]:.3f}" for column in columns)])
    summary = {
        f"{what}, {column}": round(values[column], 3)
        for what, values in (("least", least), ("mean", mean))
        for column in columns
    }
    report("controller / reference, simulated", ["trace", *columns], rows, dict(summary))
    if not args.traces:
        report_together(args.tokens // 4, args.seeds)


def each_changed() -> dict[str, dict[str, float]]:
    """Return every number of `Tuning` halved and doubled, except those of threads, which these worlds do not model."""
    found, names = dict[str, dict[str, float]](), [each.name for each in fields(TUNING)]
    for name in names[: names.index("settling_passes")]:
        low, high = halved_and_doubled(getattr(TUNING, name))
        found |= {f"{name} = {low:g}": {name: low}, f"{name} = {high:g}": {name: high}}
    return found


def report_together(n: int, n_seeds: int) -> None:
    """Print a row per case: tokens per second over those of passes without drafts."""
    seeded = [dict(together(n, seed)) for seed in range(n_seeds)]
    found = {name: statistics.fmean(each[name]() for each in seeded) for name in seeded[0]}
    rows = [[name, f"{ratio:.3f}"] for name, ratio in found.items()]
    summary = {"least": round(min(found.values()), 3), "mean": round(statistics.geometric_mean(found.values()), 3)}
    report("replies at once / the same without drafts, simulated", ["case", "plain"], rows, dict(summary))


if __name__ == "__main__":
    main()
