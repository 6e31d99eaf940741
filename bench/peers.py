"""Our engine against its peers on the same GGUF files and prompts, greedy.

Usage: `python -m bench.peers`; `--busy` keeps one core busy meanwhile. Rates are tokens per second of decoding, prefill
excluded. `times plain` and `same text` compare a configuration with its side's plain decode, and a peer's plain decode
with ours. The table is from rounds over all configurations; the ratios of the JSON line are from further rounds over
few of them, so that the compared runs are close in time and the server's best setting is not a lucky one. Knows rounds
and the table; the configurations are in `bench.instruments.ways`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import psutil

from bench.instruments.processes import Peer, busy_core, elsewhere
from bench.instruments.timing import interleaved, ratios, report, spread
from bench.instruments.ways import (
    OWN_THREADS,
    Job,
    Prompt,
    Server,
    Way,
    end,
    examine_server,
    lookups,
    ours,
    prepare,
    server_basics,
    server_settings,
)
from runtime.core.errors import SettingsError, SlipstreamError
from runtime.models.registry import Pair, find_pair, load_registry

COMPARISONS = (("adaptive", "draft defaults"), ("adaptive", "plain"), ("plain", "plain"))  # ours with the server's
FINALS = 3  # rounds of the finalists for each round over all configurations
COPIES = 2  # memory of a configuration, as a multiple of the models' files


def can_keep(job: Job, n_ways: int) -> bool:
    """Return whether memory suffices for all configurations together; otherwise each is loaded again in every round."""
    files = [job.pair.target, *([job.pair.draft] if job.pair.draft else [])]
    return n_ways * COPIES * sum(file.stat().st_size for file in files) < psutil.virtual_memory().available / 2


def same_texts(way: dict[str, set[str]], plain: dict[str, set[str]]) -> tuple[int, int]:
    """Return (questions with the same text in every round, questions answered by both)."""
    both = way.keys() & plain.keys()
    return sum(way[question] == plain[question] for question in both), len(both)


def row(peer: Peer, peers: dict[str, Peer], results: dict[str, list[float]]) -> list[str]:
    """Return a configuration's line of the table."""
    name, plain = peer.way.name, peer.way.plain
    if name not in results:
        return [name, f"failed: {peer.failure}"]
    times = f"{ratios(results[name], results[plain]).median:.3f}" if plain in results else ""
    adaptive = f"ours, adaptive{end(peer.way.threads)}"
    ahead = str(ratios(results[adaptive], results[name])) if adaptive in results else ""
    drafts = f"{peer.accepted} of {peer.drafted}" if peer.drafted else ""
    same, n = same_texts(peer.texts, peers[plain].texts)
    return [name, str(spread(results[name])), times, ahead, drafts, f"{same} of {n}"]


def compare(results: dict[str, list[float]], best: str) -> dict[str, list[float]]:
    """Return our speed over the server's, where both sides have rates: median, minimum and maximum."""
    wanted = {}
    for threads in ("", OWN_THREADS):
        wanted[f"adaptive{threads} / server's best"] = f"ours, adaptive{threads}", best
        wanted |= {
            f"{a}{threads} / server's {b}{threads}": (f"ours, {a}{threads}", f"server, {b}{threads}")
            for a, b in COMPARISONS
        }
    found = {name: ratios(results[a], results[b]) for name, (a, b) in wanted.items() if a in results and b in results}
    return {
        name: [round(value, 3) for value in (ratio.median, ratio.least, ratio.most)] for name, ratio in found.items()
    }


def measure(peers: Iterable[Peer], prompts: Sequence[Prompt], runs: int) -> dict[str, list[float]]:
    """Return the rates of the peers that do not fail."""
    asked = {peer.way.name: peer for peer in peers if not peer.failure}
    results = interleaved({name: partial(peer.rate, prompts) for name, peer in asked.items()}, runs)
    return {name: values for name, values in results.items() if not asked[name].failure}


def fastest_server(results: dict[str, list[float]]) -> str:
    """Return the name of the server's best configuration; "" if all failed."""
    rates = {name: statistics.median(values) for name, values in results.items() if name.startswith("server")}
    return max(rates, key=lambda name: rates[name], default="")


def ways(pair: Pair, server: Server, threads: int, is_busy: bool) -> tuple[list[Way], list[Way]]:
    """Return the configurations whose ratios are computed, and the rest.

    On a busy machine only each side's own defaults are compared.
    """
    basics = ours(None) + server_basics(pair, server, None)
    if is_busy:
        return basics, []
    basics = ours(threads) + server_basics(pair, server, threads) + basics
    return basics, server_settings(pair, server, threads) + lookups(threads)


def count(text: str) -> int:
    """Parse a number of at least 1."""
    if (n := int(text)) < 1:
        raise argparse.ArgumentTypeError("it must be at least 1")
    return n


def lines(path: str) -> list[str]:
    """Return the lines of a text file."""
    try:
        found = Path(path).read_text(encoding="utf8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise argparse.ArgumentTypeError(f"{path} cannot be read as text: {error}") from None
    if not any(found):
        raise argparse.ArgumentTypeError(f"{path} holds no prompt")
    return [line for line in found if line]


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.peers", description="Our engine against llama.cpp's server and llama-cpp-python."
    )
    parser.add_argument("target", nargs="?", help="a GGUF file instead of a pair")
    parser.add_argument("--pair", default="demo", help="a pair of models.toml")
    parser.add_argument("--draft", type=Path, help="a draft model's GGUF file")
    parser.add_argument(
        "--runs",
        type=count,
        default=5,
        help="rounds over all ways, after one that warms up; then three times as many of a few",
    )
    parser.add_argument(
        "--prompts", type=lines, help="a file with a prompt per line, instead of questions about Python"
    )
    parser.add_argument("--questions", type=count, default=30, help="prompts of a round, 30 at most")
    parser.add_argument("--max-tokens", type=count, default=100, help="of a reply")
    parser.add_argument(
        "--threads", type=count, help="for all ways but those with their own (our calibration's choice)"
    )
    parser.add_argument("--busy", action="store_true", help="keep one core busy, and leave the threads to each side")
    parser.add_argument("--raw", action="store_true", help="no chat template")
    return parser.parse_args()


def require_server() -> None:
    """Raise SettingsError if the package with llama.cpp's server is missing."""
    if find_spec("xllamacpp") is None:
        raise SettingsError("The package xllamacpp, llama.cpp's server, is missing. Run `pip install -e '.[bench]'`.")


def run(args: argparse.Namespace) -> None:
    """Measure every configuration, then the finalists again. Raises SlipstreamError."""
    from bench.instruments.texts import questions

    require_server()
    pair = find_pair(args.target or args.pair, load_registry())
    asked = args.prompts or questions()
    job = Job(replace(pair, draft=args.draft or pair.draft), args.max_tokens, args.raw)
    with ExitStack() as stack:
        if args.busy:
            stack.enter_context(busy_core())
        job, chosen, prompts, build = elsewhere(
            prepare, job, asked[:: max(1, len(asked) // args.questions)][: args.questions]
        )
        server, threads = elsewhere(examine_server), args.threads or chosen
        basics, more = ways(job.pair, server, threads, args.busy)
        is_kept = can_keep(job, len(basics + more))
        peers = {way.name: stack.enter_context(closing(Peer(job, way, is_kept))) for way in basics + more}
        results = measure(peers.values(), prompts, args.runs)
        best = fastest_server(results)
        finalists = {way.name for way in basics} | {best}
        final = (
            measure([peer for name, peer in peers.items() if name in finalists], prompts, FINALS * args.runs)
            if more
            else results
        )
    facts = {
        "busy": args.busy,
        "threads": threads,
        "questions": len(prompts),
        "runs": args.runs,
        "our build": build,
        "server's build": server.build,
    }
    title = f"{pair.name} against peers, {'one core busy' if args.busy else f'{threads} threads'}"
    present(title, peers, results, {"server's best": best, "ratios": compare(final, best), **facts})


def present(title: str, peers: dict[str, Peer], results: dict[str, list[float]], facts: dict[str, object]) -> None:
    """Print the table and the JSON line."""
    summary: dict[str, object] = {
        "tok/s": {name: round(statistics.median(values), 1) for name, values in results.items()},
        "same text": {name: same_texts(peer.texts, peers[peer.way.plain].texts) for name, peer in peers.items()},
        "failed": {name: peer.failure for name, peer in peers.items() if peer.failure},
    }
    columns = ["way", "tok/s", "times plain", "ours adaptive / this", "accepted", "same text"]
    report(title, columns, [row(peer, peers, results) for peer in peers.values()], facts | summary)


def main() -> None:
    """Run the comparison, or end with the error in one sentence."""
    try:
        run(arguments())
    except SlipstreamError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
