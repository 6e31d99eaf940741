"""The bundled pair, speculative against plain, greedy: `python -m bench.demo`. Also the memory that the draft adds.

Every way answers the same questions in each round; the ratio is of tokens per second of decoding, prefill excluded.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from bench.timing import interleaved, ratios, report, spread
from demo.corpus import load
from runtime.engine import Message, Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.models.registry import load_registry

WAYS = {
    "plain": Options(drafters=()),
    "adaptive (all drafters)": Options(),
    "adaptive (draft model)": Options(drafters=("model",)),
    "adaptive (n-gram)": Options(drafters=("ngram",)),
    **{f"draft model, K = {k}": Options(drafters=("model",), fixed_k=k) for k in (1, 2, 3, 4, 6, 8)},
}
MEMORY = """
import psutil, sys
from runtime.engine import Message, Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.models.registry import load_registry
engine = LoadedEngine(
    load_registry()["demo"], Options(drafters=tuple(sys.argv[1:]), n_ctx=2048, fixed_k=3 if sys.argv[1:] else None))
list(engine.reply([Message("user", "What does os.path.join do?")], Sampling(temperature=0)))
print(psutil.Process().memory_full_info().uss)
"""


def questions(n: int = 30) -> list[str]:
    """So many questions over the whole corpus."""
    entries = load(Path(__file__).parent.parent / "demo" / "corpus.jsonl")
    return [f"What does {entry.name} do?" for entry in entries[:: len(entries) // n]]


def tokens_per_second(engine: LoadedEngine, asked: list[str]) -> float:
    """Over all questions: tokens / seconds of decoding."""
    tokens = seconds = 0.0
    for question in asked:
        stats = list(engine.reply([Message("user", question)], Sampling(temperature=0), max_tokens=100))[-1].stats
        assert stats is not None
        tokens, seconds = tokens + stats.predicted_n, seconds + stats.decode_seconds
    return tokens / seconds


def memory(*drafters: str) -> int:
    """Bytes that only a process with these drafters holds after a reply; median of three."""
    runs = [
        subprocess.run([sys.executable, "-c", MEMORY, *drafters], capture_output=True, text=True, check=True)
        for _ in range(3)
    ]
    return sorted(int(run.stdout) for run in runs)[1]


def main() -> None:
    """Wanted: adaptive at least 1.4 times plain on an idle two-core CPU."""
    pair, asked = load_registry()["demo"], questions()
    added = memory("model") - memory()
    engines = {name: LoadedEngine(pair, options) for name, options in WAYS.items()}
    cases: dict[str, Callable[[], float]] = {
        name: (lambda engine=engine: tokens_per_second(engine, asked)) for name, engine in engines.items()
    }
    results = interleaved(cases)
    rows, summary = [], {}
    for name, values in results.items():
        ratio = ratios(values, results["plain"])
        rows.append([name, str(spread(values)), str(ratio)])
        summary[name] = round(ratio.median, 3)
    costs = engines["adaptive (all drafters)"].loop.controller.passes.costs.widths(0)
    shape = {width: round(seconds / costs[1], 2) for width, seconds in costs.items()}
    report(
        "demo pair, tok/s",
        ["way", "tok/s", "times plain"],
        rows,
        {**summary, "T(n)/T(1)": shape, "draft adds MiB": round(added / 2**20, 1)},
    )


if __name__ == "__main__":
    main()
