"""Speed with several concurrent clients: our server and llama.cpp's own.

Usage: `python -m bench.clients`, or with `--pair FILE.gguf`. Both servers serve the same files with the same number of
threads, each in a process of its own, and take turns. In a round every client streams one reply, all at the same
moment. Prompts differ by client and round from their first words on, so none is cached. Rates are the tokens of all
clients by the time until the last reply ended. Gaps are between two tokens, so a draft that arrives in one chunk is one
gap followed by gaps of zero.

`--kind` chooses the requests: prose, texts that repeat the given text (`grounded`), for which drafts are proposed, or
the bundled pair's own `questions`, whose answers end where the model ends them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import httpx2

from bench.instruments.servers import free_port, serving
from bench.instruments.texts import KINDS, PROSE, questions
from bench.instruments.timing import ratios, report
from runtime.models.registry import find_pair, load_registry

SPAWN = get_context("spawn")
LOADING = 120.0  # maximal seconds to load
SEED = 7
N_QUESTIONS = 300  # questions to choose from
SIDES = ("ours", "llama.cpp")


@dataclass
class Cell:
    """The results of one server with one number of clients."""

    rates: list[float] = field(default_factory=list)  # tokens per second of all clients, by round
    tokens: list[int] = field(default_factory=list)  # of each reply: sampled ones differ by server
    first: list[float] = field(default_factory=list)  # seconds until a reply's first piece of text
    gaps: list[float] = field(default_factory=list)  # seconds between two tokens
    errors: list[str] = field(default_factory=list)

    def row(self, name: str) -> list[str]:
        """Return a line of the table, in milliseconds."""
        times = [f"{1e3 * percentile(each, q):.0f}" for each in (self.first, self.gaps) for q in (0.5, 0.99)]
        rate, n_tokens = statistics.median(self.rates), statistics.fmean(self.tokens or [0])
        return [name, f"{rate:.1f}", f"{n_tokens:.0f}", *times, str(len(self.errors))]


def serve_peer(pipe: Connection, settings: dict[str, Any]) -> None:
    """Run llama.cpp's server in this process until the other end of the pipe is closed."""
    import xllamacpp

    from bench.instruments.ways import common_params

    server = xllamacpp.Server(common_params(settings))
    pipe.send(server.listening_address)
    with suppress(EOFError):
        pipe.recv()


@contextmanager
def peer(settings: dict[str, Any]) -> Iterator[str]:
    """Yield the address of llama.cpp's server in a process of its own."""
    ours, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=serve_peer, args=(theirs, settings), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(LOADING):
            raise SystemExit("llama.cpp's server did not start.")
        yield ours.recv()
    finally:
        ours.close()
        process.join(5)
        process.kill()


async def ask(client: httpx2.AsyncClient, body: dict[str, Any], cell: Cell) -> int:
    """Stream one reply; return its number of tokens."""
    began, n_tokens, n_pieces, before = time.perf_counter(), 0, 0, 0.0
    wanted = {"stream": True, "stream_options": {"include_usage": True}}
    async with client.stream("POST", "/v1/chat/completions", json=body | wanted) as reply:
        if reply.status_code != 200:
            cell.errors.append(f"{reply.status_code} {(await reply.aread()).decode()}")
            return 0
        async for line in reply.aiter_lines():
            if not line.startswith("data: {"):
                continue
            event = json.loads(line.removeprefix("data: "))
            if event.get("usage"):
                n_tokens = event["usage"]["completion_tokens"]
            if any((choice.get("delta") or {}).get("content") for choice in event.get("choices") or ()):
                now = time.perf_counter()
                (cell.gaps if before else cell.first).append(now - (before or began))
                before, n_pieces = now, n_pieces + 1
    cell.gaps += [0.0] * max(0, n_tokens - n_pieces)  # within pieces
    cell.tokens.append(n_tokens)
    return n_tokens


async def round_of(url: str, bodies: Sequence[dict[str, Any]], cell: Cell) -> None:
    """Run one round with all clients at the same time."""
    async with httpx2.AsyncClient(base_url=url, timeout=600, trust_env=False) as client:
        began = time.perf_counter()
        tokens = await asyncio.gather(*(ask(client, body, cell) for body in bodies))
        cell.rates.append(sum(tokens) / (time.perf_counter() - began))


def bodies(n: int, number: int, kind: str, temperature: float, max_tokens: int) -> list[dict[str, Any]]:
    """Return the requests of `n` clients in that round."""
    sampling = {"temperature": temperature, "max_tokens": max_tokens, "ignore_eos": kind != "questions"}
    return [
        sampling | {"messages": [{"role": "user", "content": each}], "seed": SEED + i}
        for i, each in enumerate(asked(n, number, kind, temperature))
    ]


def asked(n: int, number: int, kind: str, temperature: float) -> list[str]:
    """Return one text for each client, none of which was in an earlier round."""
    if kind == "questions":
        known = questions(N_QUESTIONS)
        return [known[(number * n + i) % len(known)] for i in range(n)]
    texts = PROSE if kind == "prose" else tuple(KINDS[each].text(False) for each in ("edit", "summary"))
    return [f"(Note {number}-{n}-{i}, {temperature}.) {texts[(number + i) % len(texts)]}" for i in range(n)]


def percentile(values: list[float], share: float) -> float:
    """Return the value that this share of the values does not exceed; 0 for no values."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else 0.0


def main() -> None:
    """Goals: at least the peer's rate, 1.2 times it for grounded text; times of at most 1.1 of the peer's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pair", default="demo")
    parser.add_argument("--clients", default="1,2,4,8")
    parser.add_argument("--temperatures", default="0,0.8")
    parser.add_argument("--kind", default="prose", choices=("prose", "grounded", "questions"))
    parser.add_argument("--tokens", type=int, default=120)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--alone", action="store_true", help="our server only")
    args = parser.parse_args()
    counts, temperatures = [int(n) for n in args.clients.split(",")], [float(t) for t in args.temperatures.split(",")]
    pair = find_pair(args.pair, load_registry()) if not Path(args.pair).is_file() else None
    target, most = pair.target if pair else Path(args.pair), max(counts)
    settings = {
        "model.path": str(target), "n_parallel": most, "n_ctx": args.context * most, "port": free_port(),
        "verbosity": 0, "cpuparams.n_threads": args.threads, "cpuparams_batch.n_threads": args.threads,
    }  # fmt: skip
    rows, summary = list[list[str]](), dict[str, object]()
    more = ["--parallel", str(most), "--context", str(args.context)]
    with ExitStack() as stack:
        servers = [serving(args.pair, more), *([] if args.alone else [peer(settings)])]
        urls = dict(zip(SIDES, map(stack.enter_context, servers), strict=False))
        for temperature in temperatures:
            for n in counts:
                cells = {side: Cell() for side in urls}
                for number in range(args.rounds + 1):
                    wanted = bodies(n, number, args.kind, temperature, args.tokens)
                    for side in urls if number % 2 else reversed(urls):
                        asyncio.run(round_of(urls[side], wanted, cells[side] if number else Cell()))
                for side, cell in cells.items():
                    rows.append(cell.row(f"{side}, {n} clients, t = {temperature}"))
                    print(" | ".join(rows[-1]), flush=True)
                    for error in set(cell.errors):
                        print("error:", error)
                if args.alone:
                    summary[f"{n} clients, t = {temperature}"] = round(statistics.median(cells["ours"].rates), 1)
                    continue
                found = ratios(cells["ours"].rates, cells["llama.cpp"].rates)
                summary[f"{n} clients, t = {temperature}"] = round(found.median, 3)
                print(f"  ours / theirs: {found}", flush=True)
    columns = ["server", "tok/s of all", "tokens", "first p50, ms", "p99", "gap p50, ms", "p99", "errors"]
    report(f"{args.pair}, {args.kind}, {args.threads} threads", columns, rows, summary)


if __name__ == "__main__":
    main()
