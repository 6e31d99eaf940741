"""The target on remote workers at growing network delays: plain decode against adaptive with a local draft model.

Usage: `LLAMA_CPP_LIB_PATH=FOLDER python -m bench.machines`, where the folder has a llama.cpp with RPC. Workers are
processes of this machine, and a relay delays each direction, as a network would. Every text is compared with the pair's
text without workers. The draft model stays here. Not measured: the bandwidth of a network, and processors that work at
the same time on several machines.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.instruments.processes import elsewhere
from bench.instruments.servers import delayed, free_port
from bench.instruments.texts import questions
from bench.instruments.timing import Spread, ratios, report
from runtime.engine import Message, Options, Prompt, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.engine.stats import Stats
from runtime.loading.worker import look_at_one
from runtime.models.registry import Pair, load_registry

DELAYS = (0.0, 0.2, 1.0, 5.0, 20.0)  # milliseconds in each direction
SHAPE, DRAFT, ACCEPTANCE = "1b", "10m", 0.8  # of the planted pair
TOKENS = 96  # maximal tokens of a reply
STARTS = 10.0  # maximal seconds until a worker has started


@dataclass(frozen=True, slots=True)
class Job:
    """A pair, its prompts, and the workers of its target; without any the target stays here."""

    pair: Pair
    prompts: tuple[Prompt, ...]
    workers: tuple[str, ...]
    rounds: int


@dataclass(frozen=True, slots=True)
class Found:
    """Tokens per second by round, plain and adaptive, the texts, and the numbers of adaptive decoding."""

    plain: list[float]
    adaptive: list[float]
    texts: tuple[list[str], list[str]]
    per_pass: float
    drafted: float  # mean draft tokens of the passes with a draft


@dataclass(frozen=True, slots=True)
class Replies:
    """Tokens per second, the texts, and the numbers."""

    rate: float
    texts: list[str]
    stats: list[Stats]


@contextmanager
def working(n: int, threads: int) -> Iterator[list[int]]:
    """Yield the ports of `n` workers."""
    with ExitStack() as stack:
        ports = [free_port() for _ in range(n)]
        for port in ports:
            command = [sys.executable, "-m", "app.cli", "worker", "--port", str(port), "--threads", str(threads)]
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            stack.callback(process.wait)
            stack.callback(process.kill)
        deadline = time.monotonic() + STARTS
        while any(look_at_one(f"127.0.0.1:{port}").problem for port in ports):
            if time.monotonic() > deadline:
                raise SystemExit("No worker started. Does LLAMA_CPP_LIB_PATH name a llama.cpp with RPC?")
            time.sleep(0.2)
        yield ports


def measure(job: Job) -> Found:
    """Measure both configurations in turns, over the same connections to the workers, which hold the target twice.

    Run in a process of its own, which has no other workers. The first round only warms up.
    """
    with ExitStack() as stack:
        options = [Options(drafters=drafters, rpc=job.workers) for drafters in ((), ("model",))]
        engines = [stack.enter_context(closing(LoadedEngine(job.pair, each))) for each in options]
        rounds = [[decode(engine, job.prompts) for engine in engines] for _ in range(job.rounds + 1)]
    plain, adaptive = zip(*rounds[1:], strict=True)
    passes = [each for reply in adaptive for stats in reply.stats for each in stats.steps]
    drafted = [each.n_drafted for each in passes if each.n_drafted]
    return Found(
        [each.rate for each in plain],
        [each.rate for each in adaptive],
        (plain[-1].texts, adaptive[-1].texts),
        sum(each.n_tokens for each in passes) / len(passes),
        sum(drafted) / max(1, len(drafted)),
    )


def decode(engine: LoadedEngine, prompts: tuple[Prompt, ...]) -> Replies:
    """Generate the replies to all prompts."""
    texts, stats = [], []
    for prompt in prompts:
        *chunks, last = engine.reply(prompt, Sampling(temperature=0), max_tokens=TOKENS)
        texts.append("".join(chunk.text for chunk in chunks))
        stats += [last.stats] if last.stats else []
    rate = sum(each.predicted_n for each in stats) / sum(each.decode_seconds for each in stats)
    return Replies(rate, texts, stats)


def pairs(folder: Path, shape: str, wanted: list[str]) -> Iterator[tuple[str, Pair, tuple[Prompt, ...]]]:
    """Yield the bundled pair, and a planted one of a real shape."""
    if "demo" in wanted:
        asked = tuple([Message("user", text)] for text in questions()[:4])
        yield "demo", load_registry()["demo"], asked
    if "planted" in wanted:
        from bench.instruments.planted import MAX_WORDS, plant, prompts
        from bench.instruments.shapes import FILE_TYPES, SHAPES

        pair = plant(folder, SHAPES[shape], SHAPES[DRAFT], ACCEPTANCE, file_type=FILE_TYPES["Q8_0"])
        yield f"planted {shape}", pair, tuple(prompts(SHAPES[shape].vocab, (0, 512), MAX_WORDS, 0))


def main() -> None:
    """Print a row for each pair, number of workers and delay."""
    parser = argparse.ArgumentParser(description="Plain and adaptive decoding, with the target on workers.")
    parser.add_argument("--pairs", nargs="+", choices=("demo", "planted"), default=["demo", "planted"])
    parser.add_argument("--shape", default=SHAPE, help="of the planted target")
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 3])
    parser.add_argument("--delays", type=float, nargs="+", default=list(DELAYS), help="milliseconds in each direction")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1, help="of a worker")
    args = parser.parse_args()
    rows: list[list[str]] = []
    gains: dict[str, Spread] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, pair, prompts in pairs(Path(folder), args.shape, args.pairs):
            here = elsewhere(measure, Job(pair, prompts, (), 1))
            for n in args.workers:
                for delay in args.delays:
                    with ExitStack() as stack:
                        ports = stack.enter_context(working(n, args.threads))
                        far = [stack.enter_context(delayed(port, delay / 1e3)) for port in ports]
                        workers = tuple(f"127.0.0.1:{port}" for port in far)
                        found = elsewhere(measure, Job(pair, prompts, workers, args.rounds))
                    gain = gains[f"{name}, {n} workers, {delay:g} ms"] = ratios(found.adaptive, found.plain)
                    rows.append(
                        [
                            name, str(n), f"{delay:g}", f"{median(found.plain):.1f}", f"{median(found.adaptive):.1f}",
                            str(gain), f"{found.per_pass:.1f}", f"{found.drafted:.1f}",
                            "yes" if found.texts == here.texts else "NO",
                        ]
                    )  # fmt: skip
                    print(" | ".join(rows[-1]), flush=True)
    columns = [
        "pair",
        "workers",
        "ms each way",
        "plain tok/s",
        "adaptive",
        "times plain",
        "tokens/pass",
        "K",
        "same text",
    ]
    report("machines", columns, rows, {"times_plain": {name: gain.median for name, gain in gains.items()}})


if __name__ == "__main__":
    main()
