"""Public models on six kinds of text: plain decode, our defaults, and llama.cpp's server.

Usage: `python -m bench.real`. Replies are greedy without a seed and sampled with one. The server runs plain and with
the best of its n-gram settings. `--markdown` also writes the tables into docs/real-models.md. A cell is a kind of text
at a temperature. Its configurations take turns, round by round, and every ratio is of runs of the same round. Each
configuration has a process of its own. Those of the server's n-gram settings are reopened for every reply, because some
of them remember replies. The n-gram setting of a cell is chosen by one reply of each. Rates are tokens per second of
decoding, prefill excluded. Knows cells and tables; the configurations are in `bench.instruments.ways`.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from bench.instruments.processes import Peer, elsewhere
from bench.instruments.texts import KINDS
from bench.instruments.timing import interleaved, machine, ratios, report, spread
from bench.instruments.ways import (
    Job,
    Prompt,
    Server,
    Way,
    examine_server,
    open_ours,
    open_server,
    prepare,
    server_settings,
)
from bench.instruments.weights import LARGE, MODELS, FetchError, fetched
from bench.peers import count, require_server
from runtime.core.errors import SettingsError, SlipstreamError
from runtime.models.registry import Pair

CONTEXT = 4096  # tokens: from 3,072 on the types of the cache are measured, as in longer ones
TEMPERATURES = 0.0, 0.8
PLAIN, ADAPTIVE, SERVER = "plain", "adaptive", "server, plain"
COLUMNS = ["text", "temp.", "plain tok/s", "ours", "llama.cpp plain", "its best n-gram", "ours / its best", "same"]
PAGE = Path(__file__).parents[1] / "docs" / "real-models.md"
BEGIN, END = "<!-- the table of bench.real -->\n", "<!-- its end -->"


@dataclass(frozen=True, slots=True)
class Plan:
    """The models, texts, temperatures and numbers of rounds to measure."""

    models: tuple[str, ...]
    kinds: tuple[str, ...]
    temperatures: tuple[float, ...]
    tokens: int
    rounds: int


@dataclass(frozen=True, slots=True)
class Cell:
    """The results of one kind of text at one temperature: tok/s by configuration and round."""

    model: str
    kind: str
    temperature: float
    rates: dict[str, list[float]]
    others: frozenset[str]  # the configurations that did not give plain decode's text in every round

    def lookup(self) -> str:
        """Return the measured n-gram setting of the server; "" if all of them failed."""
        return next((name for name in self.rates if name.startswith("server") and name != SERVER), "")

    def times(self, name: str, base: str = PLAIN) -> str:
        """Return the median and range of one configuration's ratios to another's in the same rounds; with a star where
        llama.cpp's server wrote another text, which may repeat itself more or less.
        """
        if name not in self.rates or base not in self.rates:
            return "failed"
        found, star = ratios(self.rates[name], self.rates[base]), "*" if {name, base} & self.others - {ADAPTIVE} else ""
        return f"{found.median:.2f}{star} ({found.least:.2f} to {found.most:.2f})"

    def row(self) -> list[str]:
        """Return the line of the table."""
        lookup = self.lookup()
        return [
            self.kind,
            f"{self.temperature:g}",
            f"{spread(self.rates[PLAIN]).median:.1f}",
            self.times(ADAPTIVE),
            self.times(SERVER),
            f"{self.times(lookup)} {lookup.removeprefix('server, ')}",
            self.times(ADAPTIVE, lookup),
            "NO" if ADAPTIVE in self.others else "yes",
        ]


def our_ways(threads: int) -> list[Way]:
    """Return plain decode and the defaults."""
    settings: dict[str, dict[str, object]] = {PLAIN: {"drafters": ()}, ADAPTIVE: {}}
    return [Way(name, open_ours, PLAIN, threads, options) for name, options in settings.items()]


def lookup_ways(pair: Pair, server: Server, threads: int) -> list[Way]:
    """Return the server's n-gram settings."""
    return [way for way in server_settings(pair, server, threads) if "ngram" in way.name]


def rate(peer: Peer, prompt: Prompt) -> float:
    """Return the tokens per second of one reply."""
    return peer.rate([prompt])


def fastest(peers: Sequence[Peer], prompt: Prompt) -> list[Peer]:
    """Return the peer with the fastest single reply; none if all fail."""
    found = {peer.way.name: rate(peer, prompt) for peer in peers}
    well = [peer for peer in peers if not math.isnan(found[peer.way.name])]
    return sorted(well, key=lambda peer: -found[peer.way.name])[:1]


def measure(peers: Sequence[Peer], prompt: Prompt, rounds: int) -> tuple[dict[str, list[float]], frozenset[str]]:
    """Return the rates of the peers that do not fail, and the names of those that did not give plain decode's text in
    all rounds.
    """
    for peer in peers:
        peer.texts.clear()
    asked = {peer.way.name: peer for peer in peers}
    rates = interleaved({name: partial(rate, peer, prompt) for name, peer in asked.items()}, rounds)
    if failure := asked[PLAIN].failure or asked[ADAPTIVE].failure:
        raise SettingsError(f"Our engine failed: {failure}.")
    texts = {name: peer.texts.get(prompt.question, set()) for name, peer in asked.items() if not peer.failure}
    others = frozenset(name for name, found in texts.items() if len(found | texts[PLAIN]) > 1)
    return {name: values for name, values in rates.items() if name in texts}, others


def prompts(plan: Plan, encoded: Sequence[Prompt]) -> Iterator[tuple[str, Prompt]]:
    """Yield every kind at every temperature."""
    for kind, prompt in zip(plan.kinds, encoded, strict=True):
        for temperature in plan.temperatures:
            yield kind, replace(prompt, temperature=temperature, form=KINDS[kind].form)


def cells(plan: Plan, model: str, server: Server) -> Iterator[Cell]:
    """Yield the cells of one model. Raises FetchError."""
    weights = (MODELS | LARGE)[model]
    pair = Pair(model, fetched(weights), context=CONTEXT)
    asked = [KINDS[kind].text(weights.is_raw) for kind in plan.kinds]
    job, threads, encoded, _ = elsewhere(prepare, Job(pair, plan.tokens, weights.is_raw), asked)
    kept = [*our_ways(threads), Way(SERVER, open_server, PLAIN, threads)]
    with ExitStack() as stack:
        peers = [stack.enter_context(closing(Peer(job, way))) for way in kept]
        lookups = [Peer(job, way, is_kept=False) for way in lookup_ways(pair, server, threads)]
        for kind, prompt in prompts(plan, encoded):
            rates, others = measure([*peers, *fastest(lookups, prompt)], prompt, plan.rounds)
            yield Cell(model, kind, prompt.temperature, rates, others)


def markdown(found: Sequence[Cell], plan: Plan) -> str:
    """Return the tables for the page, one for each model."""
    parts = [f"\n{machine()}; {plan.rounds} rounds of {plan.tokens} tokens.\n"]
    for model in dict.fromkeys(cell.model for cell in found):
        lines = [COLUMNS, ["---"] * len(COLUMNS), *(cell.row() for cell in found if cell.model == model)]
        parts.append(f"**{model}**\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines))
    return "\n".join(parts) + "\n"


def fill_in(page: Path, text: str) -> None:
    """Replace the text between the page's marks. Raises SettingsError without them."""
    before, begin, rest = page.read_text(encoding="utf8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SettingsError(f"{page.name} has no place for the table. Put {BEGIN.strip()} and {END} there.")
    page.write_text(before + begin + text + end + after, encoding="utf8")


def chosen(known: Sequence[str], text: str) -> tuple[str, ...]:
    """Parse names between commas."""
    names = tuple(text.split(","))
    if unknown := [name for name in names if name not in known]:
        raise argparse.ArgumentTypeError(f"there is no '{unknown[0]}'; known: {', '.join(known)}")
    return names


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.real", description="Public models: plain decode, our defaults, and llama.cpp's server."
    )
    for option, known in {"--models": (*MODELS, *LARGE), "--kinds": tuple(KINDS)}.items():
        parser.add_argument(option, type=partial(chosen, known), default=known, help=f"of {','.join(known)}")
    parser.add_argument("--temperatures", type=float, nargs="+", default=TEMPERATURES, help="0: no seed")
    parser.add_argument("--tokens", type=count, default=96, help="of a reply")
    parser.add_argument("--rounds", type=count, default=5, help="of every cell, after one that warms up")
    parser.add_argument("--markdown", action="store_true", help=f"write the tables into docs/{PAGE.name} as well")
    return parser.parse_args()


def run(args: argparse.Namespace) -> None:
    """Measure and print. Raises SlipstreamError, FetchError."""
    require_server()
    plan = Plan(args.models, args.kinds, tuple(args.temperatures), args.tokens, args.rounds)
    server = elsewhere(examine_server)
    found = []
    for model in plan.models:
        for cell in cells(plan, model, server):
            found.append(cell)
            print(cell.model, *cell.row(), sep="  ", file=sys.stderr, flush=True)
    facts = {"tokens": plan.tokens, "rounds": plan.rounds, "server's build": server.build}
    summary = {
        f"{c.model}, {c.kind}, {c.temperature:g}": {w: round(statistics.median(v), 1) for w, v in c.rates.items()}
        for c in found
    }
    rows = [[cell.model, *cell.row()] for cell in found]
    report("public models, times plain", ["model", *COLUMNS], rows, {**facts, "tok/s": summary})
    if args.markdown:
        fill_in(PAGE, markdown(found, plan))


def main() -> None:
    """Run the comparison, or end with the error in one sentence."""
    try:
        run(arguments())
    except (SlipstreamError, FetchError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
