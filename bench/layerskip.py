"""Early exit on the bundled target, without the draft model: `python -m bench.layerskip`.

What passes cost with and without their hidden rows used again, and what that allows at best; then replies, greedy,
against plain decode, and the memory of both.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median

import numpy as np

from bench.demo import questions, tokens_per_second
from bench.timing import interleaved, ratios, report, spread
from runtime.backends.early_exit import EarlyExitBackend
from runtime.core.draft import Draft
from runtime.engine import Message, Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.models.registry import Pair, load_registry
from runtime.speculative.control.acceptance import Acceptance
from runtime.speculative.control.policy import Policy, Price

KS = (1, 2, 3, 4, 5, 6, 7, 8)
N_CONTEXT = 128
ROUNDS = 8  # until the best rate and the worth of drafts at that rate agree
PAYS = 1.02  # times plain decode, from which it is worth the trouble
PEAK = """
import resource, sys
from bench.layerskip import answer, layerskip_pair
from runtime.engine import Options
from runtime.engine.loaded import LoadedEngine
answer(LoadedEngine(layerskip_pair(), Options(drafters=tuple(sys.argv[1:]), fixed_k=4 if sys.argv[1:] else None)))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def layerskip_pair() -> Pair:
    """The bundled target alone."""
    return replace(load_registry()["demo"], draft=None)


def answer(engine: LoadedEngine) -> tuple[int, int]:
    """(drafted, accepted) over a few questions."""
    stats = [
        list(engine.reply([Message("user", asked)], Sampling(temperature=0), max_tokens=100))[-1].stats
        for asked in questions()[::5]
    ]
    return sum(each.draft_n for each in stats if each), sum(each.draft_n_accepted for each in stats if each)


def acceptance() -> tuple[float, Acceptance]:
    """Accepted / drafted, three tokens at a time; and the chances by confidence that were learned from that."""
    engine = LoadedEngine(layerskip_pair(), Options(drafters=("layerskip",), fixed_k=3))
    drafted, accepted = answer(engine)
    engine.close()
    return accepted / max(1, drafted), engine.loop.controller.states["layerskip"].acceptance


def promise(ms: dict[str, float], learned: Acceptance) -> float:
    """How many times plain decode the controller's own formula promises: drafting token by token, and only where that
    pays.
    """
    plain, early = ms["T(1)"], ms["early"]
    passes = [plain, *(max(ms[f"{k} reused"] - k * early, 1e-3) for k in KS)]
    rate = 1 / plain
    for _ in range(ROUNDS):
        rate = max(Policy(learned, passes, Price(early, early, 0.0), rate).rate, 1 / plain)
    return rate * plain


def peak(*drafters: str) -> float:
    """MiB that a process with these drafters held at most; median of three."""
    runs = [
        subprocess.run([sys.executable, "-c", PEAK, *drafters], capture_output=True, text=True, check=True)
        for _ in range(3)
    ]
    return median(int(run.stdout) / 1024 for run in runs)


def cycle(target: EarlyExitBackend, tokens: np.ndarray, k: int, reuses: bool) -> float:
    """Milliseconds of drafting `k` tokens early and verifying them."""
    target.reuses, began = reuses, time.perf_counter()
    for i in range(k):
        target.early.forward(tokens[: N_CONTEXT + i])
    target.forward(tokens[:N_CONTEXT], Draft(tuple(tokens[N_CONTEXT : N_CONTEXT + k].tolist())))
    return 1e3 * (time.perf_counter() - began)


def full(target: EarlyExitBackend, tokens: np.ndarray, k: int) -> float:
    """Milliseconds of a pass over k + 1 rows of which nothing was drafted early."""
    began = time.perf_counter()
    target.forward(tokens[:N_CONTEXT], Draft(tuple(tokens[N_CONTEXT : N_CONTEXT + k].tolist())))
    return 1e3 * (time.perf_counter() - began)


def plain(target: EarlyExitBackend, tokens: np.ndarray) -> float:
    """The same over one row after another such pass, as in plain decode: after anything else it takes longer."""
    full(target, tokens, 0)
    return full(target, tokens, 0)


def early(target: EarlyExitBackend, tokens: np.ndarray) -> float:
    """Milliseconds of an early pass after another."""
    target.early.forward(tokens[:N_CONTEXT])
    began = time.perf_counter()
    target.early.forward(tokens[: N_CONTEXT + 1])
    return 1e3 * (time.perf_counter() - began)


def costs(target: EarlyExitBackend, runs: int) -> dict[str, float]:
    """Milliseconds of everything: medians of interleaved runs."""
    tokens = np.random.default_rng(1).integers(0, target.n_vocab, N_CONTEXT + max(KS) + 1).astype(np.int32)
    cases: dict[str, Callable[[], float]] = {
        "T(1)": lambda: plain(target, tokens),
        "early": lambda: early(target, tokens),
    }
    for k in KS:
        cases[f"T({k + 1})"] = lambda k=k: full(target, tokens, k)
        cases[f"{k} reused"] = lambda k=k: cycle(target, tokens, k, reuses=True)
        cases[f"{k} in full"] = lambda k=k: cycle(target, tokens, k, reuses=False)
    return {name: median(values) for name, values in interleaved(cases, runs).items()}


def show_costs(rate: float, learned: Acceptance, options: Options, runs: int) -> None:
    """What speculation can bring at this acceptance: by K, and as the controller decides."""
    engine = LoadedEngine(layerskip_pair(), replace(options, drafters=("layerskip",)))
    target = engine.loop.backend
    assert isinstance(target, EarlyExitBackend)
    ms = costs(target, runs)
    engine.close()
    rows, best = [], 0.0
    for k in KS:
        tokens = sum(rate**i for i in range(k + 1))
        gains = [tokens * ms["T(1)"] / ms[f"{k} {how}"] for how in ("in full", "reused")]
        best = max(best, *gains)
        rows.append(
            [
                str(k),
                *(f"{ms[name]:.2f}" for name in (f"T({k + 1})", f"{k} in full", f"{k} reused")),
                *(f"{gain:.2f}" for gain in gains),
            ]
        )
    columns = ["K", "T(K + 1), ms", "cycle in full, ms", "cycle with reuse, ms", "times plain, in full", "with reuse"]
    promised = promise(ms, learned)
    known = {
        "T(1) ms": ms["T(1)"],
        "early ms": ms["early"],
        "acceptance": rate,
        "times plain at best": best,
        "promised": promised,
    }
    report("early exit, what costs allow", columns, rows, {name: round(value, 3) for name, value in known.items()})
    print(verdict(promised, ms))


def verdict(promised: float, ms: dict[str, float]) -> str:
    """What the costs say, as a sentence."""
    shape = ", ".join(f"{ms[f'T({width})'] / ms['T(1)']:.2f}" for width in (2, 3, 4))
    costs = (
        f"an early pass costs {ms['early'] / ms['T(1)']:.2f} of a full one, and passes over 2, 3, 4 rows {shape} times "
        "one over a single row"
    )
    return (
        f"Costs promise {promised:.2f} times plain decode: {'layerskip' if promised >= PAYS else 'plain decode'} pays "
        f"here, because {costs}."
    )


def show_speed(options: Options, runs: int) -> None:
    """Wanted: the best way at least 1.1 times plain, and peak memory within 2%."""
    drafting = replace(options, drafters=("layerskip",))
    ways = {"plain": replace(options, drafters=()), "adaptive": drafting} | {
        f"K = {k}": replace(drafting, fixed_k=k) for k in (2, 3, 4, 6, 8)
    }
    engines = {name: LoadedEngine(layerskip_pair(), each) for name, each in ways.items()}
    asked = questions()[::3]
    cases: dict[str, Callable[[], float]] = {
        name: (lambda engine=engine: tokens_per_second(engine, asked)) for name, engine in engines.items()
    }
    results = interleaved(cases, runs)
    rows, summary = [], {}
    for name, values in results.items():
        ratio = ratios(values, results["plain"])
        rows.append([name, str(spread(values)), str(ratio)])
        summary[name] = round(ratio.median, 3)
    memory = peak("layerskip") / peak()
    report(
        "early exit, tok/s",
        ["way", "tok/s", "times plain"],
        rows,
        {**summary, "peak memory, times plain": round(memory, 4)},
    )


def main() -> None:
    """Costs, then speed."""
    parser = argparse.ArgumentParser(description="Measure early exit on the bundled target.")
    parser.add_argument("--runs", type=int, default=7, help="rounds")
    parser.add_argument("--threads", type=int, default=None, help="threads, instead of measuring")
    args = parser.parse_args()
    options = Options(threads=args.threads)
    show_costs(*acceptance(), options, 3 * args.runs)
    show_speed(options, args.runs)


if __name__ == "__main__":
    main()
