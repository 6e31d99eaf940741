"""Replies with a seed have only passes that round as plain decode does; others wider ones where that gains enough."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from bench.instruments.toy import ToyBackend, one_step
from runtime.core.draft import NO_DRAFT, Draft, Logits, Tokens
from runtime.core.drafter import Drafter, traits_of
from runtime.drafters.model import ModelDrafter
from runtime.drafters.ngram import NgramDrafter
from runtime.sampling.sampler import Sampler
from runtime.sampling.settings import Sampling
from runtime.speculative.control.controller import Controller
from runtime.speculative.decoder import Decoder
from runtime.speculative.step import DraftingState, widths_of
from runtime.speculative.target import TargetPasses
from runtime.speculative.verify import rule_of
from tests.support.control import costs_of

GREEDY, GREEDY_SEEDED = Sampling(temperature=0), Sampling(temperature=0, seed=4)
SEEDED, UNSEEDED = Sampling(temperature=1.5, seed=4), Sampling(temperature=1.5)


class RoundsByWidth(ToyBackend):
    """Passes over more than `exact` rows have other logits: as kernels that round by width, but grossly."""

    def __init__(self, exact: int) -> None:
        super().__init__()
        self.exact, self.widest = exact, 0

    def forward(self, context: Tokens, draft: Draft = NO_DRAFT, exact: bool = True) -> Logits:
        logits = super().forward(context, draft, exact)
        self.widest = max(self.widest, len(logits))
        return logits if len(logits) <= self.exact else logits[:, ::-1].copy()


def reply(  # type: ignore[no-untyped-def]
    sampling: Sampling,
    exact: int,
    drafters: list[Drafter],
    fixed_k: int | None = None,
    fast: bool = False,
    always_exact: bool = False,
):
    """60 tokens, the target and the loop that made them."""
    costs = costs_of(*(1.0 + 0.01 * width for width in range(1, 10)))
    known = {drafter.name: traits_of(drafter, 0.001) for drafter in drafters}
    controller = Controller(costs, known, max_k=8, fixed_k=fixed_k)
    target = RoundsByWidth(exact)
    loop = Decoder(TargetPasses(target, sys.maxsize if fast else exact), drafters, controller)
    sampler = Sampler(sampling)
    request = DraftingState(60, rule_of(sampler), widths_of(sampler, always_exact))
    context = [1, 2]
    loop.begin(request, np.array(context, dtype=np.int32))
    while len(context) < 62:
        tokens = np.array(context, dtype=np.int32)
        context += one_step(loop, tokens, sampler, len(context) - 2, 62 - len(context), request).tokens
    return context, target, loop


@pytest.mark.parametrize("fixed_k", [None, 3, 8])
@pytest.mark.parametrize("exact", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("sampling", [GREEDY_SEEDED, SEEDED], ids=["greedy", "seeded"])
def test_the_text_is_plain_decodes_whatever_rounds_otherwise(
    sampling: Sampling, exact: int, fixed_k: int | None
) -> None:
    drafters: list[Drafter] = [NgramDrafter(), ModelDrafter(ToyBackend(), 6)]
    text, target, _ = reply(sampling, exact, drafters, fixed_k)
    assert text == reply(sampling, exact, [])[0]
    assert target.widest <= exact
    assert target.widest > 1 or exact == 1


@pytest.mark.parametrize("sampling", [GREEDY, UNSEEDED], ids=["greedy", "sampled"])
def test_an_unseeded_reply_may_use_every_width(sampling: Sampling) -> None:
    _, target, _ = reply(sampling, 1, [ModelDrafter(ToyBackend(), 6)], fixed_k=3)
    assert target.widest == 4


def test_where_all_replies_are_to_be_exact_a_greedy_one_needs_no_seed() -> None:
    assert reply(GREEDY, 2, [ModelDrafter(ToyBackend(), 6)], fixed_k=3, always_exact=True)[1].widest == 2


def test_a_wider_pass_must_be_faster_by_a_twentieth_for_a_greedy_reply_without_a_seed() -> None:
    controller = Controller(costs_of(1.0, 1.5, 2.0, 3.0), {}, max_k=3)
    for exact_rows, seconds in ((2, [1.0, 1.5, 2.1, 3.15]), (1, [1.0, 1.575, 2.1, 3.15]), (None, [1.0, 1.5, 2.0, 3.0])):
        terms = controller.begin(0, exact_rows=exact_rows)
        assert terms.seconds == pytest.approx(seconds)
        assert terms.shares == [1.0, 1.5, 2.0, 3.0]  # what is paid is what they take


def test_who_wants_speed_may_give_the_promise_up() -> None:
    assert reply(GREEDY_SEEDED, 1, [ModelDrafter(ToyBackend(), 6)], fixed_k=3, fast=True)[1].widest == 4


def test_a_reply_that_goes_without_drafts_for_that_says_so() -> None:
    _, _, loop = reply(GREEDY_SEEDED, 1, [ModelDrafter(ToyBackend(), 6)])
    assert loop.why_plain().code == "exactness"
    assert "round differently from plain decode" in loop.why_plain().text
    assert reply(GREEDY_SEEDED, 2, [ModelDrafter(ToyBackend(), 6)])[2].why_plain().code != "exactness"
