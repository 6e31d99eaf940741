"""Both rules keep the target's law: greedy and seeded text token for token, unseeded text in distribution."""

from __future__ import annotations

import numpy as np
import pytest

from runtime import verify as verify_module
from runtime.controller import Controller
from runtime.costs import PassCosts
from runtime.draft import NO_DRAFT, Budget, Distribution, Draft, Drafter, Tokens
from runtime.drafters.model import ModelDrafter
from runtime.drafters.ngram import NgramDrafter
from runtime.loop import SpecLoop
from runtime.sampling import Sampler, Sampling, distribution
from runtime.verify import verify
from tests.toy import ToyBackend

N_DRAWS = 20_000
FALSE_ALARM = 1e-6  # the draws are seeded, so a test that passes once passes always


def make_loop(drafters: list[Drafter], k: int) -> SpecLoop:
    costs = PassCosts()
    costs.set(1, 1.0)
    return SpecLoop(ToyBackend(), drafters, Controller(costs, {d.name: 0.01 for d in drafters}, max_k=8, fixed_k=k))


def generate(loop: SpecLoop, sampling: Sampling, n: int = 60) -> list[int]:
    context, sampler = np.array([1, 2], dtype=np.int32), Sampler(sampling)
    while len(context) < n + 2:
        step = loop.step(context, sampler, len(context) - 2, n + 2 - len(context))
        context = np.concatenate([context, np.array(step.tokens, dtype=np.int32)])
    return context[2:].tolist()


DRAFTERS = {
    "good": lambda: [ModelDrafter(ToyBackend(blur=0.2), 6)],
    "poor": lambda: [ModelDrafter(ToyBackend(blur=0.9), 6)],
    "ngram": lambda: [NgramDrafter()],
    "both": lambda: [ModelDrafter(ToyBackend(blur=0.4), 6), NgramDrafter()],
}


@pytest.mark.parametrize("drafters", DRAFTERS)
@pytest.mark.parametrize("k", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.5])
def test_seeded_text_does_not_depend_on_the_drafter(drafters: str, k: int, temperature: float) -> None:
    for seed in range(5):
        sampling = Sampling(temperature=temperature, seed=seed)
        plain = generate(make_loop([], 1), sampling)
        assert generate(make_loop(DRAFTERS[drafters](), k), sampling) == plain


def test_plain_seeded_text_differs_between_seeds() -> None:
    texts = {tuple(generate(make_loop([], 1), Sampling(temperature=1.0, seed=seed))) for seed in range(8)}
    assert len(texts) == 8


def test_a_good_draft_model_is_accepted_more_often_than_a_poor_one_under_the_coupled_rule() -> None:
    def accepted(blur: float) -> int:
        loop, context, total = make_loop([ModelDrafter(ToyBackend(blur=blur), 6)], 3), np.array([1, 2], dtype=np.int32), 0
        sampler = Sampler(Sampling(temperature=1.0, seed=3))
        for _ in range(80):
            step = loop.step(context, sampler, len(context) - 2, 8)
            total += step.n_accepted
            context = np.concatenate([context, np.array(step.tokens, dtype=np.int32)])
        return total

    assert accepted(0.0) == 3 * 80  # the same model, the same noise
    assert accepted(0.0) > accepted(0.3) > accepted(0.95)


def chi_square_tail(counts: np.ndarray, expected: np.ndarray) -> float:
    """P(chi-square >= observed), by Wilson and Hilferty's cube-root normal approximation."""
    from math import erfc, sqrt

    kept = expected > 5
    statistic = float(((counts - expected)[kept] ** 2 / expected[kept]).sum())
    freedom = int(kept.sum()) - 1
    z = ((statistic / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / sqrt(2 / (9 * freedom))
    return 0.5 * erfc(z / sqrt(2))


def pair_law(sampling: Sampling) -> np.ndarray:
    """Exact law [n_vocab, n_vocab] of the first two tokens after (1, 2)."""
    model, law = ToyBackend(), np.zeros((6, 6))
    first = distribution(model.row([1, 2]), sampling)
    for a, p in zip(first.ids, first.probs, strict=True):
        second = distribution(model.row([2, int(a)]), sampling)
        law[a, second.ids] = p * second.probs
    return law


def sampled_draft(sampler: Sampler, shape: str) -> Draft:
    """A draft of a wrong model: a sampled chain, a chain of point masses, or a tree of point masses."""
    model = ToyBackend(blur=0.5)
    if shape == "chain":
        first = distribution(model.row([1, 2]), sampler.sampling)
        token = sampler.draw(first)
        second = distribution(model.row([2, token]), sampler.sampling)
        return Draft((token, sampler.draw(second)), probs=(first, second))
    if shape == "points":
        return Draft((3, 1))
    return Draft((3, 0, 5, 1, 2, 4), parents=(-1, -1, -1, 0, 0, 1))


def draw_pairs(shape: str, seed: int = 11) -> np.ndarray:
    """Counts of the first two tokens over N_DRAWS speculative runs without a seed of their own."""
    model, counts, context = ToyBackend(), np.zeros((6, 6)), np.array([1, 2], dtype=np.int32)
    sampler = Sampler(Sampling(temperature=1.0, top_p=0.9))
    sampler.rng = np.random.default_rng(seed)
    for _ in range(N_DRAWS):
        draft = sampled_draft(sampler, shape)
        tokens = list(verify(draft, model.forward(context, draft), sampler).tokens)
        while len(tokens) < 2:
            after = np.array([1, 2, *tokens], dtype=np.int32)
            tokens += verify(NO_DRAFT, model.forward(after), sampler).tokens
        counts[tokens[0], tokens[1]] += 1
    return counts


@pytest.mark.parametrize("shape", ["chain", "points", "tree"])
def test_the_rejection_rule_keeps_the_targets_law(shape: str) -> None:
    law = pair_law(Sampling(temperature=1.0, top_p=0.9))
    counts = draw_pairs(shape)
    assert not counts[law == 0].any()
    assert chi_square_tail(counts.ravel(), N_DRAWS * law.ravel()) > FALSE_ALARM


def test_a_wrong_residual_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_module, "residual", lambda target, given: target)
    law = pair_law(Sampling(temperature=1.0, top_p=0.9))
    assert chi_square_tail(draw_pairs("chain").ravel(), N_DRAWS * law.ravel()) < FALSE_ALARM


def test_the_coupled_rule_has_the_targets_law_over_seeds() -> None:
    law, counts = pair_law(Sampling(temperature=1.0, top_p=0.9)), np.zeros((6, 6))
    for seed in range(N_DRAWS):
        a, b = generate(make_loop([], 1), Sampling(temperature=1.0, top_p=0.9, seed=seed), n=2)
        counts[a, b] += 1
    assert chi_square_tail(counts.ravel(), N_DRAWS * law.ravel()) > FALSE_ALARM


def test_a_tree_is_descended_along_the_targets_own_choice() -> None:
    model, context = ToyBackend(), np.array([1, 2], dtype=np.int32)
    sampler = Sampler(Sampling(temperature=0.0))
    a = sampler.choose(model.row([1, 2]))
    b = sampler.choose(model.row([2, a]), (a,))
    wrong = (a + 1) % 6
    draft = Draft((wrong, a, wrong, b), parents=(-1, -1, 0, 1))
    verdict = verify(draft, model.forward(context, draft), sampler)
    assert verdict.accepted == (1, 3)
    assert verdict.tokens[:2] == (a, b)
    assert len(verdict.tokens) == 3


def test_a_vanishing_residual_falls_back_to_the_target() -> None:
    same = Distribution(np.array([0, 3]), np.array([0.5, 0.5]))
    assert verify_module.residual(same, same) is same


def test_an_empty_budget_drafts_nothing() -> None:
    class Eager(Drafter):
        name = "model"

        def propose(self, context: Tokens, budget: Budget) -> Draft:
            raise AssertionError("must not be asked")

    loop = make_loop([Eager()], 3)
    step = loop.step(np.array([1, 2], dtype=np.int32), Sampler(Sampling(temperature=0.0)), 0, 1)
    assert (step.drafter, len(step.tokens)) == ("none", 1)
