"""Drafting for edited copies of files, with scripted replies and pass times.

Usage: `python -m bench.edits [MODEL]`. Twelve edits of real files are generated token by token by a scripted target, so
no model runs. Drafters, controller and verification are the real ones, and passes cost as much as with Qwen2.5-Coder
1.5B in Q4_K_M on two cores. Prints for each edit the acceptance rate, tokens per pass, and speed relative to plain
decode: with the file as a prediction (`prediction`), and with the file in the prompt alone (`ngram`). The vocabulary is
that of the bundled pair, or of MODEL.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench.instruments.edits import Edit, edits
from bench.instruments.steps import one_step
from bench.instruments.timing import report
from bench.instruments.toy import ToyBackend
from runtime.backends.model import LlamaModel
from runtime.core.draft import NO_DRAFT, Draft, Logits, Tokens
from runtime.core.drafter import Drafter
from runtime.drafters.ngram import NgramDrafter
from runtime.drafters.prediction import PredictionDrafter
from runtime.models.registry import load_registry
from runtime.sampling.sampler import Sampler, Sampling
from runtime.speculative.control.controller import Controller
from runtime.speculative.control.costs import PassCosts
from runtime.speculative.control.passes import Took
from runtime.speculative.control.traits import traits_of
from runtime.speculative.decoder import Decoder
from runtime.speculative.step import DraftingState, Widths
from runtime.speculative.target import TargetPasses

PLAIN = 0.0309  # seconds of a plain pass
TIMES = {1: 1.0, 2: 1.9, 3: 2.57, 4: 2.78, 6: 3.9, 8: 5.9, 12: 7.0, 16: 6.74, 20: 8.9, 32: 12.1}  # relative, by rows
MAX_DRAFT = 31  # maximal tokens of a draft
COLUMNS = [
    "edit",
    "tokens",
    *(f"{way}{what}" for way in ("given: ", "in the prompt: ") for what in ("right", "per pass", "times plain")),
]


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
    """The results of an edit: tokens of the reply, draft tokens proposed and accepted, passes, and the speed relative
    to plain decode.
    """

    n: int
    n_drafted: int
    n_accepted: int
    n_passes: int
    times: float

    @property
    def share(self) -> float:
        """The acceptance rate."""
        return self.n_accepted / max(1, self.n_drafted)

    @property
    def cells(self) -> list[str]:
        """The numbers of a row."""
        return [f"{self.share:.0%}", f"{self.n / self.n_passes:.1f}", f"{self.times:.2f}"]


def costs_of_passes() -> PassCosts:
    """Return the costs of the model named above."""
    costs = PassCosts()
    for rows, times in TIMES.items():
        costs.set(rows, times * PLAIN)
    return costs


def decoder_of(drafter: Drafter) -> Decoder:
    """Return a decoder with these costs and no target yet."""
    controller = Controller(costs_of_passes(), {drafter.name: traits_of(drafter, 1e-5)}, MAX_DRAFT)
    return Decoder(TargetPasses(ToyBackend(), 3), [drafter], controller)


def timed_as(target: KnownText, costs: PassCosts) -> Callable[[Callable[[], Logits]], tuple[Logits, Took]]:
    """Return a function that runs a pass and reports the cost as its time."""
    seconds = costs.up_to(MAX_DRAFT + 1, 0)

    def make(passed: Callable[[], Logits]) -> tuple[Logits, Took]:
        logits = passed()
        target.seconds += seconds[target.n_rows - 1]
        return logits, Took(seconds[target.n_rows - 1], 2.0)

    return make


def copied(decoder: Decoder, prompt: Sequence[int], reply: Sequence[int], expected: Sequence[int]) -> Copied:
    """Return the results of a reply at temperature 0 without a seed."""
    ids = {token: i for i, token in enumerate(dict.fromkeys([*prompt, *reply]))}
    text = np.array([ids[token] for token in (*prompt, *reply)], dtype=np.int32)
    decoder.target.backend = target = KnownText(len(prompt), text[len(prompt) :], len(ids))
    decoder.controller.passes.time = timed_as(target, costs_of_passes())  # type: ignore[method-assign,assignment]
    state, sampler, n = DraftingState(256, widths=Widths.PREFER_EXACT), Sampler(Sampling(temperature=0)), len(prompt)
    decoder.begin(state, text[:n], [ids[token] for token in expected if token in ids])
    steps = []
    while n < len(text):
        steps.append(one_step(decoder, text[:n], sampler, n - len(prompt), len(text) - n, state))
        n += len(steps[-1].tokens)
    drafted, accepted = (sum(each) for each in zip(*[(step.n_drafted, step.n_accepted) for step in steps], strict=True))
    return Copied(len(reply), drafted, accepted, len(steps), len(reply) * PLAIN / target.seconds)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", type=Path, help="a file whose vocabulary is used")
    path = parser.parse_args().model or load_registry()["demo"].target
    vocab = LlamaModel(path).vocab
    given, prompted = decoder_of(PredictionDrafter()), decoder_of(NgramDrafter())

    def both(edit: Edit) -> tuple[Copied, Copied]:
        before, after = (vocab.encode(text, special=False) for text in (edit.before, edit.after))
        prompt = [*vocab.encode(f"{edit.instruction}\n\n```python\n", special=False), *before]
        return copied(given, prompt, after, before), copied(prompted, prompt, after, ())

    found = {name: both(edit) for name, edit in edits().items()}
    rows = [[name, str(ways[0].n), *ways[0].cells, *ways[1].cells] for name, ways in found.items()]
    medians: dict[str, object] = {
        name: round(statistics.median(ways[i].times for ways in found.values()), 3)
        for i, name in enumerate(("given", "in the prompt"))
    }
    report(f"edits in words of {path.stem}", COLUMNS, rows, medians)


if __name__ == "__main__":
    main()
