"""Every rule keeps the target's law: greedy and seeded text token for token, unseeded text in distribution."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.instruments.laws import DRAFTERS, generate, make_loop
from bench.instruments.toy import ToyBackend, one_step
from runtime.core.draft import Distribution, Draft, Tokens
from runtime.core.drafter import Budget, Drafter
from runtime.drafters.model import ModelDrafter
from runtime.sampling.sampler import Sampler
from runtime.sampling.settings import Sampling
from runtime.speculative import verify as verify_module
from runtime.speculative.verify import BLOCK, REJECTION, Rule, rule_of
from tests.support.quick import others_slow


@pytest.mark.parametrize("drafters", DRAFTERS)
@pytest.mark.parametrize("k", others_slow((1, 2, 3, 5, 8), (1, 5)))
@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.5])
def test_seeded_text_does_not_depend_on_the_drafter(drafters: str, k: int, temperature: float) -> None:
    for seed in range(5):
        sampling = Sampling(temperature=temperature, seed=seed)
        plain = generate(make_loop([], 1), Sampler(sampling), 60)
        assert generate(make_loop(DRAFTERS[drafters](), k), Sampler(sampling), 60) == plain


@settings(max_examples=60, deadline=None)
@given(
    drafters=st.sampled_from(sorted(DRAFTERS)), ks=st.lists(st.integers(1, 8), min_size=1, max_size=20),
    seed=st.integers(0, 2**64 - 1),
    temperature=st.sampled_from([0.0, 0.3, 1.0, 2.0]), top_k=st.integers(0, 6), top_p=st.floats(0.1, 1),
    min_p=st.floats(0, 0.9),
    repetition=st.floats(0.5, 2), presence=st.floats(-2, 2), frequency=st.floats(-2, 2), last_n=st.integers(0, 12),
    bias=st.dictionaries(st.integers(0, 5), st.floats(-9, 9), max_size=3),
)  # fmt: skip
def test_no_setting_lets_a_drafter_change_seeded_text(
    drafters: str, ks: list[int], seed: int, temperature: float, top_k: int, top_p: float, min_p: float,
    repetition: float, presence: float,
    frequency: float, last_n: int, bias: dict[int, float],
) -> None:  # fmt: skip
    """K changes from step to step, as a clock would have it, and drafters come and go in the middle of the reply."""
    sampling = Sampling(
        temperature, top_k, top_p, min_p, seed, repetition, frequency, presence, last_n, tuple(bias.items())
    )
    loop, context, sampler = make_loop(DRAFTERS[drafters](), 1), np.array([1, 2], dtype=np.int32), Sampler(sampling)
    resting, rng = list[Drafter](), np.random.default_rng(seed)
    for k in ks:
        loop.controller.fixed_k = k
        if rng.random() < 0.2:
            loop.active.drafters, resting = resting, loop.active.drafters
        step = one_step(loop, context, sampler, len(context) - 2, 100)
        context = np.concatenate([context, np.array(step.tokens, dtype=np.int32)])
    assert generate(make_loop([], 1), Sampler(sampling), len(context) - 2, [1, 2]) == context[2:].tolist()


def test_plain_seeded_text_differs_between_seeds() -> None:
    texts = {tuple(generate(make_loop([], 1), Sampler(Sampling(temperature=1.0, seed=seed)), 60)) for seed in range(8)}
    assert len(texts) == 8


def test_a_good_draft_model_is_accepted_more_often_than_a_poor_one_under_the_coupled_rule() -> None:
    def accepted(blur: float) -> int:
        loop, context, total = (
            make_loop([ModelDrafter(ToyBackend(blur=blur), 6)], 3),
            np.array([1, 2], dtype=np.int32),
            0,
        )
        sampler = Sampler(Sampling(temperature=1.0, seed=3))
        for _ in range(80):
            step = one_step(loop, context, sampler, len(context) - 2, 8)
            total += step.n_accepted
            context = np.concatenate([context, np.array(step.tokens, dtype=np.int32)])
        return total

    assert accepted(0.0) == 3 * 80  # the same model, the same noise
    assert accepted(0.0) > accepted(0.3) > accepted(0.95)


def test_a_tree_is_descended_along_the_targets_own_choice() -> None:
    model, context = ToyBackend(), np.array([1, 2], dtype=np.int32)
    sampler = Sampler(Sampling(temperature=0.0))
    a = sampler.choose(model.row([1, 2]))
    b = sampler.choose(model.row([2, a]), (a,))
    wrong = (a + 1) % 6
    draft = Draft((wrong, a, wrong, b), parents=(-1, -1, 0, 1))
    verdict = rule_of(sampler).verify(draft, model.forward(context, draft), sampler)
    assert verdict.accepted == (1, 3)
    assert verdict.tokens[:2] == (a, b)
    assert len(verdict.tokens) == 3


def test_a_vanishing_residual_falls_back_to_the_target() -> None:
    same = Distribution(np.array([0, 3]), np.array([0.5, 0.5]))
    assert verify_module.residual(same, same) is same


def test_what_is_left_is_what_the_target_has_more_of() -> None:
    left = verify_module.residual(
        Distribution(np.array([0, 2]), np.array([0.5, 0.5])), Distribution(np.array([1, 2]), np.array([0.6, 0.4]))
    )
    assert left.ids.tolist() == [0, 2]
    assert left.probs == pytest.approx([0.5 / 0.6, 0.1 / 0.6])


@pytest.mark.parametrize("rule", [REJECTION, BLOCK], ids=["rejection", "block"])
@pytest.mark.parametrize(("chance", "said"), [(0.49, (1, 2)), (0.51, (0,))], ids=["accepted", "rejected"])
def test_a_draft_token_is_accepted_by_its_ratio_and_else_replaced_from_the_residual(
    rule: Rule, chance: float, said: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The drafted token's p / q is 0.3 / 0.6, and the target has more than the draft of token 0 alone."""
    draft = Draft((1,), probs=(Distribution(np.arange(3), np.array([0.1, 0.6, 0.3])),))
    logits = np.log(np.array([[0.5, 0.3, 0.2], [1e-9, 1e-9, 1.0]], dtype=np.float32))
    sampler, chances = Sampler(Sampling(1.0, top_k=0, top_p=1.0, min_p=0.0)), iter([chance, 0.7])
    monkeypatch.setattr(sampler.rng, "random", lambda: next(chances))
    assert rule.verify(draft, logits, sampler).tokens == said


@pytest.mark.parametrize(("chance", "said"), [(0.19, (3, 0)), (0.21, (0,))], ids=["accepted", "rejected"])
def test_each_child_is_judged_by_what_all_before_it_left(
    chance: float, said: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third has 0.1 of the 0.5 that the first two leave."""
    draft, nothing_more = Draft((1, 2, 3), parents=(-1, -1, -1)), [1.0, 1e-9, 1e-9, 1e-9]
    logits = np.log(np.array([[0.4, 0.3, 0.2, 0.1], *[nothing_more] * 3], dtype=np.float32))
    sampler, chances = Sampler(Sampling(1.0, top_k=0, top_p=1.0, min_p=0.0)), iter([0.31, 0.29, chance, 0.5])
    monkeypatch.setattr(sampler.rng, "random", lambda: next(chances))
    assert rule_of(sampler).verify(draft, logits, sampler).tokens == said


def test_an_empty_budget_drafts_nothing() -> None:
    class Eager(Drafter):
        name = "model"

        def propose(self, context: Tokens, budget: Budget) -> Draft:
            raise AssertionError("must not be asked")

    loop = make_loop([Eager()], 3)
    step = one_step(loop, np.array([1, 2], dtype=np.int32), Sampler(Sampling(temperature=0.0)), 0, 1)
    assert (step.drafter, len(step.tokens)) == ("none", 1)
