"""Replies of public models, recorded once and generated again by a scripted target with n-gram drafts.

Usage: `python -m bench.replay --record FILE [--models smollm2,gemma3]` writes greedy replies to the prompts of
`bench.real` and the costs of passes on this machine. `python -m bench.replay FILE` prints the speed relative to plain
decode of each reply: all kinds in one process, and each kind three times. `--ablate` prints what each heuristic of the
controller is worth there. Drafters, controller and verification are the real ones. Passes take scripted times, which
vary by 6% at random, the same in every run, so results repeat exactly.

`python -m bench.replay --edits [MODEL] [--lines 120]` generates edits of some lines of real files, with the vocabulary
of the bundled pair or of MODEL; passes cost as much as with Qwen2.5-Coder 1.5B in Q4_K_M on two cores. Files stand in
blocks, before the instruction. Prints for each edit the acceptance rate, tokens per pass, and speed relative to plain
decode: with the file as a prediction (`prediction`), and with the file in the prompt alone (`ngram`).
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.instruments.heuristics import HEURISTICS, OF_LOOKUPS, Seconds, report_changes
from bench.instruments.texts import KINDS, MOST_LINES, Edit, edits
from bench.instruments.timing import report
from bench.instruments.toy import ToyBackend, one_step
from bench.instruments.weights import LARGE, MODELS, fetched
from runtime.backends.model import LlamaModel
from runtime.core.draft import NO_DRAFT, Draft, Logits, Tokens
from runtime.core.drafter import Drafter, traits_of
from runtime.drafters.ngram import NgramDrafter
from runtime.drafters.prediction import PredictionDrafter
from runtime.drafters.renames import Spelling
from runtime.engine import Message, Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.models.registry import Pair, load_registry
from runtime.sampling.sampler import Sampler
from runtime.speculative.control.controller import Controller
from runtime.speculative.control.costs import PassCosts
from runtime.speculative.control.passes import PassTime
from runtime.speculative.decoder import Decoder
from runtime.speculative.step import DraftingState, Widths
from runtime.speculative.target import TargetPasses

SPREAD, TIMES, SEEDS = 0.06, 3, 4  # of times of passes; replies of a kind; repetitions with other times
RECORDED = "summary", "edit", "code", "story", "chat"
MAX_DRAFT = 31  # maximal tokens of a draft
WAYS = "given", "in the prompt"
TICK = 1.5e-5  # seconds between two looks at the clock
CODER = {1: 1.0, 2: 1.9, 3: 2.57, 4: 2.78, 6: 3.9, 8: 5.9, 12: 7.0, 16: 6.74, 20: 8.9, 32: 12.1}  # relative, by rows


@dataclass(frozen=True, slots=True)
class Machine:
    """Seconds of passes by number of rows, the rows up to which they round alike, how much times vary (the standard
    deviation of their logarithm), and what a plain pass takes longer after a wider one.
    """

    seconds: Mapping[int, float]
    exact_rows: int = 3
    spread: float = 0.0
    after: float = 0.0

    @property
    def costs(self) -> PassCosts:
        """The costs as measured at load."""
        costs = PassCosts()
        for rows, seconds in self.seconds.items():
            costs.set(rows, seconds)
        costs.set_after(self.after)
        return costs

    def decoder(self, drafter: Drafter) -> Decoder:
        """Return a decoder with these costs and no target yet."""
        controller = Controller(self.costs, {drafter.name: traits_of(drafter, 1e-5)}, MAX_DRAFT)
        ticks = count()
        controller.passes.clock = lambda: TICK * next(ticks)
        controller.passes.set_clock = lambda: None  # type: ignore[method-assign]
        return Decoder(TargetPasses(ToyBackend(), self.exact_rows), [drafter], controller)


class KnownText(ToyBackend):
    """A target that generates a known reply [n] to a prompt of `n_prompt` tokens."""

    def __init__(self, n_prompt: int, reply: Tokens, n_vocab: int) -> None:
        self.n_prompt, self.reply, self.n_vocab, self.n_rows, self.seconds = n_prompt, reply, n_vocab, 0, 0.0
        self.n_ctx = self.n_rewindable = 1 << 20

    def forward(self, context: Tokens, draft: Draft = NO_DRAFT, exact: bool = True) -> Logits:
        """Return rows [1 + len(draft), n_vocab] in which the next tokens of the reply are the likeliest."""
        first, self.n_rows = len(context) - self.n_prompt, 1 + len(draft)
        logits = np.zeros((self.n_rows, self.n_vocab), dtype=np.float32)
        following = self.reply[first : first + self.n_rows]
        logits[np.arange(len(following)), following] = 1.0
        return logits


class Copied(NamedTuple):
    """The results of a reply: tokens of the reply, draft tokens proposed and accepted, passes, and the speed relative
    to plain decode.
    """

    n: int
    n_drafted: int
    n_accepted: int
    n_passes: int
    times: float

    @property
    def cells(self) -> list[str]:
        """The numbers of a row."""
        share = self.n_accepted / max(1, self.n_drafted)
        return [f"{share:.0%}", f"{self.n / self.n_passes:.1f}", f"{self.times:.2f}"]


def timed_as(
    target: KnownText, machine: Machine, rng: np.random.Generator
) -> Callable[[Callable[[], Logits]], tuple[Logits, PassTime]]:
    """Return a function that runs a pass and reports the time that it takes on this machine."""
    costs = machine.costs.up_to(MAX_DRAFT + 1, 0)

    def make(passed: Callable[[], Logits]) -> tuple[Logits, PassTime]:
        n_before, logits = target.n_rows, passed()
        usual = costs[target.n_rows - 1] + machine.after * (target.n_rows == 1 < n_before)
        seconds = usual * float(np.exp(rng.normal(0, machine.spread)))
        target.seconds += seconds
        return logits, PassTime(seconds, 2.0)

    return make


def copied(
    decoder: Decoder,
    machine: Machine,
    prompt: Sequence[int],
    reply: Sequence[int],
    expected: Sequence[int] = (),
    seed: int = 0,
) -> Copied:
    """Return the results of a reply at temperature 0 without a seed, which is `expected`; `seed` is of the times."""
    text = np.array([*prompt, *reply], dtype=np.int32)
    decoder.target.backend = target = KnownText(len(prompt), text[len(prompt) :], max(text) + 1)
    decoder.controller.passes.time = timed_as(target, machine, np.random.default_rng(seed))  # type: ignore[method-assign,assignment]
    state, sampler, n = DraftingState(256, widths=Widths.PREFER_EXACT), Sampler(Sampling(temperature=0)), len(prompt)
    while not decoder.begin(state, text[:n], expected):
        pass
    steps = []
    while n < len(text):
        steps.append(one_step(decoder, text[:n], sampler, n - len(prompt), len(reply), state))
        n += len(steps[-1].tokens)
    drafted, accepted = (sum(each) for each in zip(*[(step.n_drafted, step.n_accepted) for step in steps], strict=True))
    return Copied(len(reply), drafted, accepted, len(steps), len(reply) * machine.seconds[1] / target.seconds)


def record(model: str, n_tokens: int) -> dict[str, Any]:
    """Return the replies [kind] of a model as (prompt ids, reply ids), and seconds of passes by number of rows."""
    weights = (MODELS | LARGE)[model]
    engine = LoadedEngine(Pair(model, fetched(weights), context=2048), Options(drafters=("ngram",)))
    texts = dict[str, tuple[list[int], list[int]]]()
    for kind in RECORDED:
        text = KINDS[kind].text(weights.is_raw)
        prompt = text if weights.is_raw else [Message("user", text)]
        chunks = list(engine.reply(prompt, Sampling(temperature=0, seed=0), n_tokens))
        texts[kind] = engine.encode(prompt), [token for chunk in chunks for token in chunk.tokens]
    costs, exact_rows = engine.decoder.controller.passes.costs, engine.decoder.target.exact_rows
    engine.close()
    times = {"seconds": costs.widths(0), "after": costs.after}
    return {"model": model, **times, "exact_rows": exact_rows, "texts": texts}


def replayed(found: dict[str, Any], seed: int) -> Iterator[tuple[str, float]]:
    """Yield the speed of each reply relative to plain decode, by model, kind and place in its process."""
    machine = Machine(
        {int(rows): s for rows, s in found["seconds"].items()}, found["exact_rows"], SPREAD, found["after"]
    )
    kinds = list(found["texts"])
    for order in (kinds, *([kind] * TIMES for kind in kinds)):
        decoder = machine.decoder(NgramDrafter())
        for place, kind in enumerate(order):
            what = "in turn" if order is kinds else f"no. {place + 1}"
            made = copied(decoder, machine, *found["texts"][kind], seed=100 * seed + place)
            yield f"{found['model']}: {kind}, {what}", made.times


def seconds_of(files: Sequence[dict[str, Any]]) -> Seconds:
    """Return the seconds of each reply relative to plain decode, first replies and later ones of a process."""
    of = dict[str, float]()
    for found in files:
        for seed in range(SEEDS):
            for name, times in replayed(found, seed):
                of[name] = of.get(name, 0.0) + 1 / times / SEEDS
    is_first = {name: name.endswith("no. 1") for name in of}
    return {n: s for n, s in of.items() if is_first[n]}, {n: s for n, s in of.items() if not is_first[n]}


def report_edits(path: Path, n_lines: int) -> None:
    """Print a row for each edit, with the vocabulary of that file."""
    vocab, machine = LlamaModel(path).vocab, Machine({rows: 0.0309 * times for rows, times in CODER.items()})
    spelling = Spelling(vocab.pieces, encode := partial(vocab.encode, special=False))
    given, prompted = machine.decoder(PredictionDrafter(spelling)), machine.decoder(NgramDrafter(spelling))

    def both(edit: Edit) -> tuple[Copied, Copied]:
        before, after = (f"```python\n{text}```" for text in (edit.before, edit.after))
        prompt, reply = encode(f"{before}\n\n{edit.instruction}\n"), [*encode(after), vocab.end]
        return copied(given, machine, prompt, reply, encode(before)), copied(prompted, machine, prompt, reply)

    found = {name: both(edit) for name, edit in edits(n_lines).items()}
    rows = [[name, str(ways[0].n), *ways[0].cells, *ways[1].cells] for name, ways in found.items()]
    times = zip(WAYS, zip(*([way.times for way in ways] for ways in found.values()), strict=True), strict=True)
    columns = [f"{way}: {what}" for way in WAYS for what in ("right", "per pass", "times plain")]
    medians: dict[str, object] = {way: round(statistics.median(each), 3) for way, each in times}
    report(f"edits in words of {path.stem}", ["edit", "tokens", *columns], rows, medians)


def main() -> None:
    """Record, or replay and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--record", type=Path, help="a file to write")
    parser.add_argument("--models", default="smollm2,gemma3,qwen-0.5b,qwen-1.5b")
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--ablate", action="store_true")
    parser.add_argument("--edits", action="store_true", help="edits of files; FILE is a model whose vocabulary is used")
    parser.add_argument("--lines", type=int, default=MOST_LINES, help="of each file that is edited")
    args = parser.parse_args()
    if args.edits:
        report_edits(args.files[0] if args.files else load_registry()["demo"].target, args.lines)
        return
    if args.record:
        args.record.write_text(json.dumps([record(model, args.tokens) for model in args.models.split(",")]))
        args.files.append(args.record)
    files = [found for path in args.files for found in json.loads(path.read_text(encoding="utf8"))]
    if args.ablate:
        report_changes(HEURISTICS | OF_LOOKUPS, partial(seconds_of, files), ("first replies", "later ones"))
        return
    first, later = seconds_of(files)
    rows = [[name, f"{1 / seconds:.3f}"] for name, seconds in (first | later).items()]
    times = [1 / seconds for seconds in (first | later).values()]
    summary: dict[str, object] = {"least": round(min(times), 3), "mean": round(statistics.geometric_mean(times), 3)}
    report("replies with n-gram drafts / plain decode, scripted", ["reply", "times plain"], rows, summary)


if __name__ == "__main__":
    main()
