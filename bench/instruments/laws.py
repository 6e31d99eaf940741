"""The distribution of a loop's output, counted over many short replies of the toy model and compared with the exact
one.

Used by the tests in a quick version and by `python -m bench.prove` in a long one.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from bench.instruments.toy import ToyBackend, ToyBlocks, ToyHead, ToyVocab, one_step
from runtime.backends.translated import TranslatedBackend
from runtime.core.draft import Distribution, Logits
from runtime.core.drafter import Drafter, traits_of
from runtime.drafters.head import DsparkDrafter
from runtime.drafters.hydra import HydraDrafter
from runtime.drafters.lookahead import LookaheadDrafter, WindowShape
from runtime.drafters.model import ModelDrafter
from runtime.drafters.ngram import NgramDrafter
from runtime.sampling.logits import Row, distribution
from runtime.sampling.sampler import Sampler
from runtime.sampling.settings import Sampling
from runtime.speculative.control.controller import Controller
from runtime.speculative.control.costs import PassCosts
from runtime.speculative.decoder import Decoder
from runtime.speculative.target import TargetPasses

N_VOCAB = 6
WORDS, OTHER_WORDS = (b"e", b"t", b"a", b"o", b"th", b"n"), (b"t", b"e", b"th", b"a", b"z", b"q")  # four are shared
CONTEXT = [1, 2, 1, 5, 1, 2]  # its end occurs twice, so that n-gram lookup proposes something
SETTINGS = Sampling(temperature=2.5, top_p=0.95)
Make = Callable[[], list[Drafter]]
Before = tuple[tuple[Distribution, int], ...]  # tokens with their distributions
Law = Callable[[Logits, Before], Distribution]
DRAFTERS: dict[str, Make] = {
    "good model": lambda: [ModelDrafter(ToyBackend(blur=0.2), N_VOCAB)],
    "poor model": lambda: [ModelDrafter(ToyBackend(blur=0.9), N_VOCAB)],
    "model of other words": lambda: [ModelDrafter(other_words(), N_VOCAB)],
    "block of a head": lambda: [DsparkDrafter(ToyBlocks(3), N_VOCAB)],
    "heads": lambda: [HydraDrafter(ToyHead(3, blur=0.6), N_VOCAB)],
    "ngram": lambda: [NgramDrafter()],
    "model and ngram": lambda: [ModelDrafter(ToyBackend(blur=0.4), N_VOCAB), NgramDrafter()],
    "lookahead": lambda: [LookaheadDrafter(WindowShape(2, 3))],
}


def other_words() -> TranslatedBackend:
    """Return a toy draft model with a vocabulary that overlaps the target's in part."""
    inner: Any = ToyBackend(blur=0.4)
    inner.model = SimpleNamespace(vocab=ToyVocab(OTHER_WORDS))
    return TranslatedBackend(inner, ToyVocab(WORDS), 8)  # type: ignore[arg-type]  # of what it uses, all is there


def make_loop(drafters: list[Drafter], k: int) -> Decoder:
    """Return a loop over the toy model that drafts `k` tokens at every step."""
    costs = PassCosts()
    costs.set(1, 1.0)
    return Decoder(
        TargetPasses(ToyBackend()),
        drafters,
        Controller(costs, {each.name: traits_of(each, 0.01) for each in drafters}, max_k=8, fixed_k=k),
    )


def generate(loop: Decoder, sampler: Sampler, n: int, start: list[int] = CONTEXT) -> list[int]:
    """Return the first `n` tokens of a reply; drafts may reach past them."""
    context = np.array(start, dtype=np.int32)
    while (position := len(context) - len(start)) < n:
        step = one_step(loop, context, sampler, position, 100)
        context = np.concatenate([context, np.array(step.tokens, dtype=np.int32)])
    return context[len(start) :].tolist()[:n]


def usual_law(row: Logits, before: Before) -> Distribution:
    """Return the distribution of a token of SETTINGS by its logits, which is all that it depends on."""
    return distribution(Row(row), SETTINGS)


def exact_law(given: Law = usual_law) -> NDArray[np.float64]:
    """Return the exact distribution [n_vocab, n_vocab] of the first two tokens after CONTEXT, by enumeration; `given`
    is that of a token by its logits and the tokens before with their distributions.
    """
    model, law = ToyBackend(), np.zeros((N_VOCAB, N_VOCAB))
    first = given(model.row(CONTEXT), ())
    for a, p in zip(first.ids.tolist(), first.probs, strict=True):
        second = given(model.row([CONTEXT[-1], a]), ((first, a),))
        law[a, second.ids] = p * second.probs
    return law


def least_draws() -> int:
    """Return the fewest replies of which `p_value` expects two pairs often enough to compare them."""
    return int(5 / np.sort(exact_law(), axis=None)[-2]) + 1


def count(name: str, k: int, n_draws: int, is_coupled: bool, settings: Sampling = SETTINGS) -> NDArray[np.float64]:
    """Return counts [n_vocab, n_vocab] of the first two tokens over replies of either rule."""
    loop, counts = make_loop(DRAFTERS[name]() if k else [], k), np.zeros((N_VOCAB, N_VOCAB))
    for draw in range(n_draws):
        sampler = Sampler(replace(settings, seed=draw if is_coupled else None))
        if not is_coupled:
            sampler.rng = random.Random(draw)
        a, b = generate(loop, sampler, 2)
        counts[a, b] += 1
    return counts


def p_value(counts: NDArray[np.float64], law: NDArray[np.float64]) -> float:
    """Return P(chi-square >= observed) for the pairs with an expected count above five; 0.0 if an impossible pair
    occurred.
    """
    if counts[law == 0].any():
        return 0.0
    expected = counts.sum() * law
    kept = expected > 5
    statistic = ((counts - expected)[kept] ** 2 / expected[kept]).sum()
    return float(chi2.sf(statistic, kept.sum() - 1))
