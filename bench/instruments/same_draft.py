"""llama.cpp's server with the same draft model, head or drafting layer as ours, at several draft lengths.

Each configuration is in a process of its own. Knows the server's settings and rates; the caller compares.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

from bench.instruments.elsewhere import elsewhere
from bench.instruments.processes import Peer
from bench.instruments.timing import interleaved, ratios, spread
from bench.instruments.ways import DRAFT_TYPES, Job, Way, draft_lengths, drafts_by, examine_server, open_server, prepare
from runtime.engine import Message
from runtime.models.registry import Pair

LENGTHS = 1, 2, 3, 5, 8  # maximal draft tokens
PLAIN = "server, plain"
Asked = str | Sequence[Message]  # a raw prompt, or a question


def server_rows(
    pair: Pair, prompts: Sequence[Asked], most: int, threads: int | None, runs: int, ours: float
) -> Iterator[tuple[list[str], float]]:
    """Yield a row of the table of drafters for each configuration, and the ratio of `ours` (tokens per second) to its
    rate.
    """
    is_raw = isinstance(prompts[0], str)
    texts = [each if isinstance(each, str) else each[0].content for each in prompts]
    found = of_server(pair, texts, is_raw, most, threads, runs)
    plain = found[PLAIN][0] if PLAIN in found else []
    for name, (rates, drafted, accepted) in found.items():
        rate, times = spread(rates), str(ratios(rates, plain)) if plain else "-"
        share = f"{accepted / drafted:.0%}" if drafted else "-"
        yield [pair.name, name, str(rate), times, share, "-", "-", "-", "-"], ours / rate.median


def of_server(
    pair: Pair, asked: Sequence[str], is_raw: bool, most: int, threads: int | None, runs: int
) -> dict[str, tuple[list[float], int, int]]:
    """Return by configuration: tokens per second of decoding in each round, draft tokens proposed and accepted."""
    job, counted, prompts, _ = elsewhere(prepare, Job(pair, most, is_raw), asked)
    server = elsewhere(examine_server)
    settings: dict[str, dict[str, Any]] = {"plain": {}}
    if drafts_by(pair) in DRAFT_TYPES:
        settings |= draft_lengths(pair, server, LENGTHS, 0.0)
    with ExitStack() as stack:
        peers = {
            f"server, {name}": stack.enter_context(
                closing(Peer(job, Way(f"server, {name}", open_server, PLAIN, threads or counted, values)))
            )
            for name, values in settings.items()
        }
        rates = interleaved({name: partial(peer.rate, prompts) for name, peer in peers.items()}, runs)
        for name, peer in peers.items():
            if peer.failure:
                print(f"{pair.name}, {name} is left out. {peer.failure}", flush=True)
                del rates[name]
        return {name: (values, peers[name].drafted, peers[name].accepted) for name, values in rates.items()}
