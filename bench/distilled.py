"""What a draft that was made for a model brings, by kind of text: `python -m bench.distilled TARGET DRAFT`.

Plain decode, our defaults without the draft and with it, and the draft alone at fixed lengths, which says how often it
is right where the controller would not ask it. Questions are those of `bench.real` and of the app's own benchmark, so
none that `models distill` trains on by itself. With `--large`, pairs are planted whose target costs what a model of
that shape does, whose draft costs what a head for it does, and which agree as often as was measured first: what the
same draft would bring there.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from app.bench.prompts import KINDS as SINGLE
from bench.processes import Peer
from bench.real_texts import KINDS
from bench.timing import interleaved, ratios, report, spread
from bench.ways import Job, Prompt, Way, open_ours, prepare
from runtime.models.heads import begins_for
from runtime.models.registry import Pair
from tests.support.elsewhere import elsewhere
from tests.support.planted import plant, prompts
from tests.support.shapes import SHAPES, Shape

CONTEXT = 2048
PLAIN, ALONE = "plain", "alone, K="
DEPTHS = 1, 3
ALL = "chat", "story", "code", "edit", "summary"
WALKED = 256  # words of a planted walk, after which it comes again
COLUMNS = ["text", "way", "tok/s", "over plain", "accepted", "tokens per pass", "text"]


@dataclass(frozen=True, slots=True)
class Texts:
    """A kind of text, and what is asked for it."""

    kind: str
    questions: tuple[str, ...]


def texts(names: Sequence[str]) -> list[Texts]:
    """By kind: an instruction of `bench.real`, and the app's own questions of that kind or the nearest."""
    nearest = {"story": "prose", "chat": "question"}
    return [
        Texts(name, (KINDS[name].instruction, *(turns[0] for turns in SINGLE[nearest.get(name, name)])))
        for name in names
    ]


def ways(pair: Pair, threads: int) -> list[Way]:
    """What is compared on a pair; its draft takes part from the third on."""
    own = (begins_for(pair.draft) or "model",) if pair.draft else ()
    settings: dict[str, dict[str, object]] = {
        PLAIN: {"drafters": ()},
        "without the draft": {"drafters": ("ngram", "grammar", "prediction")},
        "with the draft": {},
        **{f"{ALONE}{k}": {"drafters": own, "fixed_k": k} for k in DEPTHS},
    }
    return [Way(name, open_ours, PLAIN, threads, options) for name, options in settings.items()]


def measure(peers: Sequence[Peer], asked: Sequence[Prompt], rounds: int, kind: str) -> Iterator[list[str]]:
    """A row per way. Ratios are of runs in the same round."""
    for peer in peers:
        peer.forget()
    rates = interleaved({peer.way.name: partial(peer.rate, asked) for peer in peers}, rounds)
    for peer in peers:
        if peer.failure:
            yield [kind, peer.way.name, peer.failure, *[""] * 4]
            continue
        found = rates[peer.way.name]
        accepted = f"{peer.accepted / peer.drafted:.0%} of {peer.drafted}" if peer.drafted else "-"
        per_pass = f"{peer.tokens / max(1, peer.tokens - peer.accepted):.2f}"
        same = "same" if peer.texts == peers[0].texts else "ANOTHER"
        ratio = str(ratios(found, rates[PLAIN]))
        yield [kind, peer.way.name, f"{spread(found).median:.1f}", ratio, accepted, per_pass, same]


def table(pair: Pair, kinds: Sequence[Texts], n_tokens: int, rounds: int, is_raw: bool = False) -> list[list[str]]:
    """All rows of a pair, each kind's printed as it comes."""
    questions = [question for kind in kinds for question in kind.questions]
    job, threads, asked, _ = elsewhere(prepare, Job(replace(pair, draft=None), n_tokens, is_raw), questions)
    by_question = {prompt.question: prompt for prompt in asked}
    rows = list[list[str]]()
    with ExitStack() as stack:
        peers = [stack.enter_context(closing(Peer(replace(job, pair=pair), way))) for way in ways(pair, threads)]
        for kind in kinds:
            for row in measure(peers, [by_question[question] for question in kind.questions], rounds, kind.kind):
                print(" | ".join(row), flush=True)
                rows.append(row)
    return rows


def head_for(target: Shape) -> Shape:
    """What a guess of a trained head costs: a layer with a narrow feed-forward part and the output of its words."""
    return replace(target, layers=1, ffn=2 * target.width)


def planted(name: str, share: float, folder: Path) -> tuple[Pair, list[Texts]]:
    """A pair that costs so much and agrees so often, and what is asked there."""
    shape = SHAPES[name]
    pair = plant(folder / f"{share}", shape, head_for(shape), share, words=WALKED)
    asked = tuple(prompts(shape.vocab, range(0, WALKED, WALKED // 3), WALKED)[:3])
    return replace(pair, context=CONTEXT), [Texts(f"planted {name}, right in {share:.0%}", asked)]


def options() -> argparse.ArgumentParser:
    """What can be asked for."""
    parser = argparse.ArgumentParser(description="Measure what a trained draft brings.")
    parser.add_argument("target", type=Path, nargs="?")
    parser.add_argument("draft", type=Path, nargs="?")
    parser.add_argument("--kinds", nargs="+", choices=ALL, default=ALL)
    parser.add_argument("--large", choices=SHAPES, help="plant pairs of this shape instead")
    parser.add_argument("--shares", type=float, nargs="+", default=[0.5], help="of the draft's guesses that are right")
    parser.add_argument("--tokens", type=int, default=120, help="of a reply")
    parser.add_argument("--rounds", type=int, default=5)
    return parser


def main() -> None:
    """Prints the table."""
    parser = options()
    args = parser.parse_args()
    if not args.large and args.draft is None:
        parser.error("name a target and its draft, or use --large")
    rows = list[list[str]]()
    if not args.large:
        pair = Pair("distilled", args.target, args.draft, context=CONTEXT)
        rows = table(pair, texts(args.kinds), args.tokens, args.rounds)
    with tempfile.TemporaryDirectory() as folder:
        for share in args.shares if args.large else ():
            rows += table(*planted(args.large, share, Path(folder)), args.tokens, args.rounds, is_raw=True)
    report("a draft made here", COLUMNS, rows, {"draft": args.large or args.draft.name})


if __name__ == "__main__":
    main()
