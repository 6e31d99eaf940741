"""What it costs that the models are in another process: `python -m bench.crossing [-m MODEL]`.

The same replies, plain and greedy, from an engine in this process and from one in another, in turns. Wanted: at most 50
microseconds a token, and 1% of a pass at 135M.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from pathlib import Path

from bench.timing import report
from runtime.engine import Engine, Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.models.registry import Pair, load_registry
from runtime.process.client import EngineProcess

PROMPT, TOKENS = "def split(path):", 100


def seconds_per_token(engine: Engine) -> float:
    """Of one reply, from its first token on."""
    began, n = 0.0, 0
    endless = Sampling(temperature=0, logit_bias=tuple((token, -math.inf) for token in engine.end_tokens))
    for chunk in engine.reply(PROMPT, endless, TOKENS):
        if began:
            n += len(chunk.tokens)
        elif chunk.tokens:
            began = time.perf_counter()
    return (time.perf_counter() - began) / n


def main() -> None:
    """Medians, and the median of the differences."""
    parser = argparse.ArgumentParser(description="What the way to another process costs.")
    parser.add_argument("-m", "--model", type=Path, default=load_registry()["demo"].target)
    parser.add_argument("--rounds", type=int, default=21)
    args = parser.parse_args()
    pair, options = Pair("crossing", args.model), Options(drafters=(), n_ctx=1024)
    here, there = LoadedEngine(pair, options), EngineProcess(pair, options)
    times: list[tuple[float, float]] = []
    for number in range(args.rounds + 1):
        first, second = (here, there) if number % 2 else (there, here)
        found = {engine: seconds_per_token(engine) for engine in (first, second)}
        times.append((found[here], found[there]))
    here.close()
    there.close()
    ours, theirs = (statistics.median(each) for each in zip(*times[1:], strict=True))
    more = statistics.median(b - a for a, b in times[1:])
    rows = [["in this process", f"{1e6 * ours:.0f}"], ["in another", f"{1e6 * theirs:.0f}"]]
    rows.append(["more", f"{1e6 * more:.0f} ({more / ours:.1%})"])
    report("microseconds a token", ["models", "median"], rows, {"more": round(1e6 * more, 1)})


if __name__ == "__main__":
    main()
