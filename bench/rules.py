"""Tokens per pass of block verification, over those of verification token by token.

Usage: `python -m bench.rules [--target FILE --draft FILE]`. Replies are sampled without a seed. Each draft is verified
many times by either rule, and the reply goes on from one more verdict of the block rule, so the rules differ in nothing
else. Nothing is timed. Drafts: those of the toy model in several qualities, of planted pairs, and of the bundled pair;
or those of the named pair alone.
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

from bench.instruments.laws import N_VOCAB, generate, make_loop
from bench.instruments.planted import plant, prompts
from bench.instruments.shapes import SHAPES
from bench.instruments.texts import PROSE, questions
from bench.instruments.timing import report
from bench.instruments.toy import ToyBackend
from runtime.core.draft import Draft, Logits
from runtime.drafters.model import ModelDrafter
from runtime.engine import Message, Options, Prompt, Sampling, sequence
from runtime.engine.loaded import LoadedEngine
from runtime.models.registry import Pair, load_registry
from runtime.sampling.sampler import Sampler
from runtime.speculative.verify import BLOCK, REJECTION, Block, Verdict

BLURS, SHARES = (0.7, 0.5, 0.3, 0.1), (0.5, 0.9)  # of the toy's drafts; of right words of the planted ones
APART = 128  # words of a planted walk between the places of two prompts
DEFAULTS = Sampling()
COLUMNS = ["drafts", "K", "passes", "accepted", "token by token", "block", "block / token by token"]


@dataclass
class Both(Block):
    """Verifies each draft `n_times` by either rule, and counts the accepted tokens."""

    n_times: int
    n_passes: int = 0
    n_tried: float = 0.0  # draft tokens before which token by token all were accepted
    accepted: dict[bool, float] = field(default_factory=lambda: {False: 0.0, True: 0.0})  # is_block -> draft tokens

    def verify(self, draft: Draft, logits: Logits, sampler: Sampler) -> Verdict:
        """See Rule."""
        if draft.probs:
            self.n_passes += 1
            for is_block, rule in ((False, REJECTION), (True, BLOCK)):
                found = [len(rule.verify(draft, logits, sampler).accepted) for _ in range(self.n_times)]
                self.accepted[is_block] += sum(found) / self.n_times
                if not is_block:
                    self.n_tried += sum(min(n + 1, len(draft)) for n in found) / self.n_times
        return super().verify(draft, logits, sampler)

    @property
    def per_pass(self) -> tuple[float, float]:
        """Tokens of a pass with a draft, token by token and as a block."""
        token, block = (1 + n / self.n_passes for n in self.accepted.values())
        return token, block

    @property
    def figures(self) -> list[str]:
        """Passes, acceptance rate of a token, tokens per pass by rule, and their ratio."""
        token, block = self.per_pass
        rate = self.accepted[False] / self.n_tried
        return [str(self.n_passes), f"{rate:.2f}", f"{token:.3f}", f"{block:.3f}", f"{block / token:.3f}"]


Reply = Callable[[Both, int], None]  # generates text by a rule with drafts of a length


def toy(both: Both, k: int, blur: float, n_tokens: int) -> None:
    """Generate a text of the toy model."""
    loop = make_loop([ModelDrafter(ToyBackend(blur=blur), N_VOCAB)], k)
    with patch("bench.instruments.toy.rule_of", lambda sampler: both):
        generate(loop, Sampler(Sampling(1.0, top_k=0, top_p=1.0, min_p=0.0)), n_tokens)


def replies(both: Both, k: int, pair: Pair, asked: Sequence[Prompt], sampling: Sampling, n_tokens: int) -> None:
    """Generate a pair's replies."""
    options = Options(2048, ("model",), fixed_k=k, max_k=k, threads=1)
    with patch.object(sequence, "rule_of", lambda sampler: both), closing(LoadedEngine(pair, options)) as engine:
        for prompt in asked:
            list(engine.reply(prompt, sampling, n_tokens))


def cases(args: argparse.Namespace, folder: Path) -> Iterator[tuple[str, Reply]]:
    """Yield each kind of drafts with what generates text by them."""
    if args.target:
        yield case(args, Pair(args.target.stem, args.target, args.draft), conversations(args, PROSE))
        return
    for blur in BLURS:
        yield f"toy, blur {blur}", partial(toy, blur=blur, n_tokens=10 * args.tokens)
    for share in SHARES:
        pair = plant(folder / str(share), SHAPES["tiny"], SHAPES["tiny"], share)
        walks = prompts(SHAPES["tiny"].vocab, range(0, APART * args.questions, APART))
        yield case(args, replace(pair, name=f"planted {share:.0%}"), walks)
    yield case(args, load_registry()["demo"], conversations(args, questions()))


def conversations(args: argparse.Namespace, asked: Sequence[str]) -> list[Prompt]:
    """Return the first questions as conversations."""
    return [[Message("user", question)] for question in asked[: args.questions]]


def case(args: argparse.Namespace, pair: Pair, asked: Sequence[Prompt]) -> tuple[str, Reply]:
    """Return a pair's name, and what generates its replies to these prompts."""
    sampling = Sampling(args.temperature, args.top_k, args.top_p, args.min_p)
    return pair.name, partial(replies, pair=pair, asked=asked, sampling=sampling, n_tokens=args.tokens)


def options() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description="Compare the rules of verification on the same drafts.")
    parser.add_argument("--ks", type=int, nargs="+", default=[2, 4, 8], help="draft lengths")
    parser.add_argument("--questions", type=int, default=8, help="put to a pair")
    parser.add_argument("--tokens", type=int, default=100, help="of a reply; of the toy model ten times as many")
    parser.add_argument("--temperature", type=float, default=DEFAULTS.temperature, help="of a pair's replies")
    parser.add_argument("--top-k", type=int, default=DEFAULTS.top_k, help="0: off")
    parser.add_argument("--top-p", type=float, default=DEFAULTS.top_p, help="1: off")
    parser.add_argument("--min-p", type=float, default=DEFAULTS.min_p, help="0: off")
    parser.add_argument("--times", type=int, default=50, help="that each rule verifies a draft")
    parser.add_argument("--target", type=Path, help="a model file, instead of all other drafts")
    parser.add_argument("--draft", type=Path, help="its draft model")
    return parser


def main() -> None:
    """Print a row for each kind of drafts and each length."""
    parser = options()
    args, rows, summary = parser.parse_args(), list[list[str]](), dict[str, object]()
    if (args.target is None) != (args.draft is None):
        parser.error("--target and --draft go together.")
    with tempfile.TemporaryDirectory() as name:
        for what, reply in cases(args, Path(name)):
            for k in args.ks:
                both = Both(args.times)
                reply(both, k)
                rows.append([what, str(k), *both.figures])
                token, block = both.per_pass
                summary[f"{what}, K {k}"] = round(block / token, 3)
    report("tokens per pass by rule", COLUMNS, rows, summary)


if __name__ == "__main__":
    main()
