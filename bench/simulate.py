"""Replays traces of acceptance through the controller, without a model or a clock: `python -m bench.simulate
[TRACE.json ...]`.

A trace says for every place in a text how sure the drafter would be of its token there and whether the target agrees.
Beside the controller stand four references: plain decode, the best fixed K, a clairvoyant that knows the chance of each
token but not the outcome, and the hindsight ceiling that knows the outcomes. All times are the trace's own. Traces are
made up here, or recorded by `record`.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from bench.demo import questions
from bench.timing import report
from runtime.engine import Engine, Message, Options, Sampling
from runtime.models.registry import Pair, load_registry
from runtime.sampling.sampler import Sampler
from runtime.speculative.control.controller import Controller
from runtime.speculative.control.costs import PassCosts
from runtime.speculative.control.drafter_state import Scored
from runtime.speculative.control.policy import best_length

MAX_K = 8
NAME = "model"


@dataclass(frozen=True, slots=True)
class Trace:
    """Places in a text, and what passes and drafts cost there, in seconds."""

    name: str
    confidences: Sequence[float]
    chances: Sequence[
        float
    ]  # of acceptance, where they are known; else estimated from the outcomes of alike confidences
    agrees: Sequence[bool]
    passes: Sequence[float]  # by width - 1
    first: float
    rest: float

    def run(self, place: int, most: int = MAX_K) -> int:
        """How many tokens from `place` on the target would accept."""
        return next(
            (k for k, agrees in enumerate(self.agrees[place : place + most]) if not agrees),
            min(most, len(self.agrees) - place),
        )

    def draft_seconds(self, n_thought: int) -> float:
        """Of so many draft tokens, the declined included."""
        return self.first + (n_thought - 1) * self.rest if n_thought else 0.0

    @property
    def plain_seconds(self) -> float:
        """Of the whole text without drafts."""
        return len(self.agrees) * self.passes[0]


def step(controller: Controller, trace: Trace, place: int) -> tuple[int, float]:
    """One step of the controller at a place: (tokens that came, seconds)."""
    controller.begin(0)
    survival, k, said = 1.0, 0, list[float]()
    most = min(controller.max_k, len(trace.agrees) - place - 1)
    asked = most > 0 and controller.is_worth_asking(NAME)
    while asked and k < most:
        if k and not controller.goes_on(NAME, k, survival, said[-1]):
            break
        said.append(trace.confidences[place + k])
        after = survival * controller.known[NAME].acceptance.chance(said[-1])
        if not controller.includes(NAME, k, after, said[-1]):
            break
        survival, k = after, k + 1
    right = min(k, trace.run(place))
    draft, verify = trace.draft_seconds(len(said)), trace.passes[k]
    if asked:
        n_known = min(len(said), right + 1)
        scored = [
            Scored(
                NAME,
                said,
                n_known,
                trace.run(place, n_known),
                trace.first,
                (len(said) - 1) * trace.rest,
                len(said) - 1,
                k > 0,
            )
        ]
        controller.learn(scored, right + 1, draft, verify, draft + verify)
    else:
        controller.learn([], 1, 0.0, verify, verify)
    return right + 1, draft + verify


def controller_for(trace: Trace, max_k: int = MAX_K) -> Controller:
    """As after loading: costs are measured, nothing else is known."""
    costs = PassCosts()
    for width, seconds in enumerate(trace.passes[: max_k + 1], start=1):
        costs.set(width, seconds)
    return Controller(costs, {NAME: trace.rest}, max_k)


def adaptive(trace: Trace, controller: Controller | None = None) -> float:
    """Seconds of the whole text."""
    controller, place, total = controller or controller_for(trace), 0, 0.0
    while place < len(trace.agrees):
        came, seconds = step(controller, trace, place)
        place, total = place + came, total + seconds
    return total


def fixed(trace: Trace, k: int) -> float:
    """Seconds with always `k` drafted tokens."""
    place, total = 0, 0.0
    while place < len(trace.agrees):
        total += trace.draft_seconds(k) + trace.passes[k]
        place += 1 + min(k, trace.run(place))
    return total


def clairvoyant(trace: Trace) -> float:
    """Seconds when the chances, not the outcomes, of the tokens ahead are known: the best length at the rate that this
    itself attains.
    """
    rate, total = 1 / trace.passes[0], trace.plain_seconds
    for _ in range(8):
        place, total = 0, 0.0
        lengths = [seconds + trace.draft_seconds(k) for k, seconds in enumerate(trace.passes)]
        while place < len(trace.agrees):
            k, _ = best_length(trace.chances[place : place + MAX_K], lengths, rate, 0.0)
            total += lengths[k]
            place += 1 + min(k, trace.run(place))
        rate = len(trace.agrees) / total
    return total


def hindsight(trace: Trace) -> float:
    """Seconds when every outcome is known: the shortest way through the text."""
    n = len(trace.agrees)
    left = [0.0] * (n + MAX_K + 2)
    for place in range(n - 1, -1, -1):
        right = trace.run(place)
        left[place] = min(trace.passes[k] + trace.draft_seconds(k) + left[place + 1 + k] for k in range(right + 1))
    return left[0]


# Made-up traces: costs of real machines, text of a chosen kind.

COSTS: dict[str, tuple[Sequence[float], float, float]] = {
    "1B, 2 cores": ([46, 67, 79, 82, 129, 132, 138, 143, 150], 6.0, 4.0),
    "demo, 2 cores": ([2.08, 3.4, 4.0, 4.3, 5.0, 5.6, 6.1, 6.3, 7.7], 0.85, 0.37),
    "1B Q4_K_M": ([46, 73, 99, 123, 154, 180, 205, 230, 255], 6.0, 4.0),
    "GPU": ([10, 10.3, 10.6, 10.9, 11.2, 11.5, 11.8, 12.1, 17], 1.5, 1.4),
    "draft as slow": ([46, 67, 79, 82, 129, 132, 138, 143, 150], 50.0, 46.0),
}
Law = Callable[[int, np.random.Generator], tuple[np.ndarray, np.ndarray]]  # length -> (confidences, chances)


def unsure(chance: float) -> Law:
    """A drafter whose confidence says nothing."""
    return lambda n, rng: (np.full(n, 0.85), np.full(n, chance))


def informed(mean: float, noise: float = 0.05) -> Law:
    """Confidence is about the chance, which comes in stretches."""

    def law(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        levels = rng.beta(3 * mean, 3 * (1 - mean), size=n // 6 + 1).repeat(6)[:n]
        return np.clip(levels + rng.normal(0, noise, n), 0.01, 0.999), levels

    return law


def collapsing(before: float, after: float) -> Law:
    """Acceptance changes in mid-text, confidence does not."""
    return lambda n, rng: (np.full(n, 0.85), np.concatenate([np.full(n // 2, before), np.full(n - n // 2, after)]))


LAWS = {f"unsure {chance}": unsure(chance) for chance in (0.1, 0.3, 0.5, 0.7, 0.9)}
LAWS |= {f"informed {mean}": informed(mean) for mean in (0.3, 0.5, 0.7, 0.9)}
LAWS |= {"0.9, then 0.1": collapsing(0.9, 0.1), "0.1, then 0.9": collapsing(0.1, 0.9)}


def made_up(law: Law, costs: tuple[Sequence[float], float, float], n: int, seed: int, name: str = "") -> Trace:
    """`n` places by a law, at the costs (milliseconds) of a machine."""
    rng = np.random.default_rng(seed)
    confidences, chances = law(n, rng)
    passes, first, rest = costs
    agrees = (rng.random(n) < chances).tolist()
    return Trace(
        name, confidences.tolist(), chances.tolist(), agrees, [1e-3 * t for t in passes], 1e-3 * first, 1e-3 * rest
    )


def made_up_traces(n: int, seed: int) -> Iterator[Trace]:
    """Every law at every cost."""
    for where, costs in COSTS.items():
        for what, law in LAWS.items():
            yield made_up(law, costs, n, seed, f"{where}: {what}")


def estimated(trace: Trace) -> Trace:
    """A recorded trace with the chances that its own confidences turn out to have meant."""
    edges = np.quantile(trace.confidences, np.linspace(0, 1, 11)[1:-1])
    which = np.searchsorted(edges, trace.confidences, side="right")
    agrees = np.array(trace.agrees)
    means = np.array([agrees[which == i].mean() if (which == i).any() else 0.0 for i in range(10)])
    return replace(trace, chances=means[which].tolist())


def recorded(path: Path) -> Trace:
    """A trace that `record` wrote."""
    return estimated(Trace(**json.loads(path.read_text(encoding="utf8"))))


def record(pair: Pair, prompts: Sequence[str], most: int = 100) -> Trace:
    """Plain greedy replies, and beside each token what the pair's draft model would have said; costs as measured on
    this machine.
    """
    engine = Engine(pair, Options(drafters=(NAME,)))
    for prompt in prompts[:8]:  # what passes and drafts cost is learned by using them
        list(engine.reply([Message("user", prompt)], Sampling(temperature=0), most))
    controller, backend = engine.loop.controller, engine.loop.drafters[0].backend  # type: ignore[attr-defined]
    known, sampler = controller.known[NAME], Sampler(Sampling(temperature=0))
    confidences, agrees = list[float](), list[bool]()
    for prompt in prompts:
        ids = engine.encode([Message("user", prompt)])
        said = [
            token
            for chunk in engine.reply([Message("user", prompt)], Sampling(temperature=0), most)
            for token in chunk.tokens
        ]
        for i, token in enumerate(said):
            pick = sampler.pick(backend.forward(np.array(ids + said[:i], dtype=np.int32))[0])
            confidences.append(pick.confidence)
            agrees.append(pick.token == token)
    passes = controller.costs.up_to(MAX_K + 1, 0)
    engine.close()
    return Trace(pair.name, confidences, [], agrees, passes, known.first_seconds, known.rest_seconds)


def compare(traces: Sequence[Trace]) -> dict[str, float]:
    """Tokens per second of the controller over those of each reference, in the sum over alike traces."""
    ours = sum(adaptive(trace) for trace in traces)
    best_fixed = min(sum(fixed(trace, k) for trace in traces) for k in range(MAX_K + 1))
    return {
        "plain": sum(trace.plain_seconds for trace in traces) / ours,
        "best fixed": best_fixed / ours,
        "clairvoyant": sum(clairvoyant(trace) for trace in traces) / ours,
        "hindsight": sum(hindsight(trace) for trace in traces) / ours,
    }


def main() -> None:
    """A row per trace; the last ones are the least and the geometric mean."""
    parser = argparse.ArgumentParser(description="Replay traces of acceptance through the controller.")
    parser.add_argument("traces", nargs="*", type=Path, help="recorded traces; without any, made-up ones")
    parser.add_argument("--record", type=Path, help="write a trace of the bundled pair here first")
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    if args.record:
        args.record.write_text(json.dumps(asdict(record(load_registry()["demo"], questions()))), encoding="utf8")
        args.traces.append(args.record)
    if args.traces:
        cells = {path.stem: [recorded(path)] for path in args.traces}
    else:
        seeded = [list(made_up_traces(args.tokens, seed)) for seed in range(args.seeds)]
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


if __name__ == "__main__":
    main()
