"""Tokens per pass of block verification over those of verification token by token, on the same drafts.

Usage: `python -m bench.rules [--target FILE --draft FILE]`. Every draft of sampled replies without a seed is verified
often by both rules, and the reply goes on from one verdict of the block rule, so that the two differ in nothing else.
Counts only, so that it may run beside other work: the toy model with drafts of several qualities, planted pairs, and the
bundled pair or the one that is named.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from unittest.mock import patch

from bench.instruments import steps
from bench.instruments.laws import N_VOCAB, generate, make_loop
from bench.instruments.planted import plant, prompts
from bench.instruments.questions import PROSE, questions
from bench.instruments.shapes import Shape
from bench.instruments.timing import report
from bench.instruments.toy import ToyBackend
from runtime.core.draft import Draft, Logits
from runtime.drafters.model import ModelDrafter
from runtime.engine import Message, Options, Prompt, Sampling, sequence
from runtime.engine.loaded import LoadedEngine
from runtime.models.registry import Pair, load_registry
from runtime.sampling.sampler import Sampler
from runtime.speculative.verify import BLOCK, REJECTION, Block, Verdict

BLURS, SHARES = (0.5, 0.3, 0.1), (0.5, 0.9)  # of the toy drafts; of right words of the planted drafts
PLANTED = Shape(width=128, layers=2, heads=2, kv_heads=1, ffn=256, vocab=2048)
DEFAULTS = Sampling()
HESITATION = 0.6  # of the planted drafts where they are wrong
COLUMNS = ["drafts", "K", "passes", "accepted", "token by token", "block", "block / token by token"]


@dataclass
class Both(Block):
    """Verifies each draft `n` times by each rule, and counts the tokens of a pass."""

    n: int
    n_passes: int = 0
    tokens: dict[str, float] = field(default_factory=lambda: {"token": 0.0, "block": 0.0})
    n_tried: float = 0.0  # draft tokens whose predecessors were accepted token by token

    def verify(self, draft: Draft, logits: Logits, sampler: Sampler) -> Verdict:
        """See Rule."""
        if draft.probs:
            self.n_passes += 1
            for name, rule in (("token", REJECTION), ("block", BLOCK)):
                found = [len(rule.verify(draft, logits, sampler).accepted) for _ in range(self.n)]
                self.tokens[name] += 1 + sum(found) / self.n
                if name == "token":
                    self.n_tried += sum(min(each + 1, len(draft)) for each in found) / self.n
        return super().verify(draft, logits, sampler)

    def row(self, name: str, k: int) -> tuple[list[str], float]:
        """Return a row of the table, and the block rule's tokens per pass over the other's."""
        token, block = (each / self.n_passes for each in self.tokens.values())
        rate = (token - 1) * self.n_passes / self.n_tried
        return [
            name,
            str(k),
            str(self.n_passes),
            f"{rate:.2f}",
            f"{token:.3f}",
            f"{block:.3f}",
            f"{block / token:.3f}",
        ], (block / token)


def toy(both: Both, k: int, blur: float, n_tokens: int) -> None:
    """Generate a text of the toy model with such drafts."""
    loop = make_loop([ModelDrafter(ToyBackend(blur=blur), N_VOCAB)], k)
    with patch.object(steps, "rule_of", lambda sampler: both):
        generate(loop, Sampler(Sampling(1.0, top_k=0, top_p=1.0, min_p=0.0)), n_tokens)


def replies(both: Both, k: int, pair: Pair, asked: Sequence[Prompt], sampling: Sampling, n_tokens: int) -> None:
    """Generate a pair's replies to these prompts."""
    options = Options(2048, ("model",), fixed_k=k, max_k=k, threads=1)
    with patch.object(sequence, "rule_of", lambda sampler: both), closing(LoadedEngine(pair, options)) as engine:
        for prompt in asked:
            list(engine.reply(prompt, sampling, n_tokens))


def cases(args: argparse.Namespace, folder: Path) -> Iterator[tuple[str, Callable[[Both, int], None]]]:
    """Yield each kind of drafts with what generates a text with them."""
    if args.target:
        yield case(args, Pair(args.target.stem, args.target, args.draft), said(PROSE, args))
        return
    for blur in BLURS:
        yield f"toy, blur {blur}", partial(toy, blur=blur, n_tokens=10 * args.tokens)
    for share in SHARES:
        pair = plant(folder / str(share), PLANTED, PLANTED, share, hesitation=HESITATION)
        yield case(
            args,
            replace(pair, name=f"planted {share:.0%}"),
            prompts(PLANTED.vocab, range(0, 128 * args.questions, 128)),
        )
    yield case(args, load_registry()["demo"], said(questions(), args))


def said(asked: Sequence[str], args: argparse.Namespace) -> list[Prompt]:
    """Return the first questions as conversations."""
    return [[Message("user", question)] for question in asked[: args.questions]]


def case(args: argparse.Namespace, pair: Pair, asked: Sequence[Prompt]) -> tuple[str, Callable[[Both, int], None]]:
    """Return a pair's name, and what generates its replies to these prompts."""
    sampling = Sampling(args.temperature, args.top_k, args.top_p, args.min_p)
    return pair.name, partial(replies, pair=pair, asked=asked, sampling=sampling, n_tokens=args.tokens)


def main() -> None:
    """Print a row for each kind of drafts and each length."""
    parser = argparse.ArgumentParser(description="Compare the rules of verification on the same drafts.")
    parser.add_argument("--ks", type=int, nargs="+", default=[2, 4, 8], help="draft lengths")
    parser.add_argument("--questions", type=int, default=8, help="put to a pair")
    parser.add_argument("--tokens", type=int, default=100, help="of a reply; of the toy model ten times as many")
    parser.add_argument("--temperature", type=float, default=DEFAULTS.temperature, help="of the pairs' replies")
    parser.add_argument("--top-k", type=int, default=DEFAULTS.top_k, help="0: off")
    parser.add_argument("--top-p", type=float, default=DEFAULTS.top_p, help="1: off")
    parser.add_argument("--min-p", type=float, default=DEFAULTS.min_p, help="0: off")
    parser.add_argument("--times", type=int, default=50, help="that each rule verifies a draft")
    parser.add_argument("--target", type=Path, help="a model file, instead of the bundled pair")
    parser.add_argument("--draft", type=Path, help="its draft model")
    args, rows, summary = parser.parse_args(), list[list[str]](), dict[str, object]()
    with tempfile.TemporaryDirectory() as name:
        for what, generate_text in cases(args, Path(name)):
            for k in args.ks:
                both = Both(args.times)
                generate_text(both, k)
                row, ratio = both.row(what, k)
                rows.append(row)
                summary[f"{what}, K {k}"] = round(ratio, 3)
    report("tokens per pass by rule", COLUMNS, rows, summary)


if __name__ == "__main__":
    main()
