"""A head that learns beside a stream of questions whose subject changes: `python -m bench.adapt HEAD.gguf`.

The bundled target is asked about one group of modules, then about another; one engine has a head that is trained on
what was rejected, after every block of questions, which stands for a time in which nothing is asked; the other one has
the head as it was. Both draft three tokens in every pass, so what is counted depends on no clock. A question may come
back in other words, as those of people do: those about what was not asked before are counted as well by themselves.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path

from demo.conversations import question
from demo.corpus import Entry, load
from runtime.engine import Message, Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.learning import place as places
from runtime.learning.versions import Versions
from runtime.models.registry import Pair, load_registry
from runtime.training.adapting import adapt
from runtime.training.further import train_further
from runtime.training.measuring import measure

DEMO = load_registry()["demo"]
GREEDY = Sampling(temperature=0)
OPTIONS = Options(1024, fixed_k=3, drafters=("model",), threads=1)
SEED = 2310_07177
GROUPS = "first", "second"


@dataclass(frozen=True, slots=True)
class Asked:
    """A question and what drafts were worth in its reply."""

    block: int
    group: str
    is_new: bool  # was nothing asked of that entry before?
    drafted: Sequence[int]  # by the head as it was, by the one that learns
    accepted: Sequence[int]
    is_same: bool  # is the text the same?


def groups(entries: Sequence[Entry], n: int) -> dict[str, list[Entry]]:
    """`n` entries of every other top-level name, and of the names between: the first are what the head was trained
    on, where it was trained on a part.
    """
    names = sorted({entry.name.partition(".")[0] for entry in entries})
    halves = {"first": set(names[::2]), "second": set(names[1::2])}
    rng = random.Random(SEED)
    return {
        group: rng.sample([entry for entry in entries if entry.name.partition(".")[0] in half], n)
        for group, half in halves.items()
    }


def stream(n_entries: int, n_blocks: int, n_asked: int) -> Iterator[tuple[int, str, bool, str]]:
    """(block, group, is it new, question): half of the blocks about one group, half about the other."""
    rng, known = random.Random(SEED + 1), set[str]()
    pools = groups(load(Path("demo/corpus.jsonl")), n_entries)
    for block in range(n_blocks):
        group = GROUPS[block >= n_blocks // 2]
        for _ in range(n_asked):
            entry = rng.choice(pools[group])
            yield block, group, entry.name not in known, question(entry.name, rng)
            known.add(entry.name)


def said(engine: LoadedEngine, text: str) -> tuple[list[int], int, int]:
    """The reply's tokens, those drafted, those accepted."""
    chunks = list(engine.reply([Message("user", text)], GREEDY, 120))
    stats = chunks[-1].stats
    assert stats is not None
    return [token for chunk in chunks for token in chunk.tokens], stats.draft_n, stats.draft_n_accepted


def learn(engine: LoadedEngine, pair: Pair) -> None:
    """What happens while nothing is asked: the replies are kept, a head is trained, and used if it is better."""
    head = pair.draft or Path()
    engine.tend()
    began, worked = time.monotonic(), time.process_time()
    told = adapt(places.place_of(pair.target, head), pair.target, head, train_further, measure)
    print(f"  {told} ({time.monotonic() - began:.0f} s, {time.process_time() - worked:.0f} s of a core)", flush=True)
    engine.tend()
    while not any(drafter.name == "eagle" for drafter in engine.loop.lineup.drafters):
        engine.loop.lineup.degrade()


def measured(head: Path, known: Sequence[Asked], n_entries: int, n_blocks: int, n_asked: int) -> Iterator[Asked]:
    """The stream, question by question, after those that are known."""
    pair = replace(DEMO, draft=head, context=1024)
    with (
        closing(LoadedEngine(pair, OPTIONS)) as fixed,
        closing(LoadedEngine(replace(pair, learn=True), OPTIONS, learns=True)) as learning,
    ):
        before = known[-1].block if known else 0
        for block, group, is_new, text in islice(stream(n_entries, n_blocks, n_asked), len(known), None):
            if block != before:
                learn(learning, pair)
                before = block
            (tokens, *ours), (others, *theirs) = said(fixed, text), said(learning, text)
            learning.tend()
            yield Asked(block, group, is_new, (ours[0], theirs[0]), (ours[1], theirs[1]), tokens == others)


def shares(asked: Sequence[Asked]) -> list[float]:
    """Accepted of drafted tokens without and with adaptation."""
    return [
        round(sum(each.accepted[i] for each in asked) / max(1, sum(each.drafted[i] for each in asked)), 4)
        for i in range(2)
    ]


def main() -> None:
    """Prints a line per block, and ends in one JSON line."""
    parser = argparse.ArgumentParser(description="A head that learns beside a stream whose subject changes.")
    parser.add_argument("head", type=Path, help="an EAGLE-3 head for the bundled target")
    parser.add_argument("--entries", type=int, default=120, help="of each group")
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--asked", type=int, default=40, help="questions in a block")
    parser.add_argument("--work", type=Path, default=Path(".adapt"), help="where a run that was ended goes on")
    args = parser.parse_args()
    os.environ["XDG_DATA_HOME"] = str(args.work.absolute())  # what the user's own heads have learned is another matter
    args.work.mkdir(parents=True, exist_ok=True)
    log = args.work / "asked.jsonl"
    found = [Asked(**json.loads(line)) for line in log.read_text().splitlines()] if log.exists() else []
    for each in measured(args.head, found, args.entries, args.blocks, args.asked):
        if found and each.block != found[-1].block:
            tell(found)
        found.append(each)
        with log.open("a") as file:
            print(json.dumps(asdict(each)), file=file)
    tell(found)
    blocks = [shares([each for each in found if each.block == block]) for block in range(args.blocks)]
    fresh = {group: shares([each for each in found if each.group == group and each.is_new]) for group in GROUPS}
    state = Versions(places.place_of(DEMO.target, args.head)).read()
    print(
        json.dumps(
            {
                "blocks": blocks,
                "asked for the first time": fresh,
                "same text": all(each.is_same for each in found),
                "versions": [asdict(each.measured) for each in state.versions],
                "thrown away": state.n_discarded,
            }
        )
    )


def tell(found: Sequence[Asked]) -> None:
    """A line on the latest block."""
    block = found[-1].block
    here = [each for each in found if each.block == block]
    without, with_it = shares(here)
    new = shares([each for each in here if each.is_new])
    print(f"{block}, {here[0].group} group: {without:.1%} without, {with_it:.1%} with; new ones {new}", flush=True)


if __name__ == "__main__":
    main()
