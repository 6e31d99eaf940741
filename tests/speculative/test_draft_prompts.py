"""Draft models read a prompt after its first token, piece by piece between passes."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from bench.instruments.toy import Clock
from runtime.core.draft import NO_DRAFT, Draft, Logits, Tokens
from runtime.core.drafter import Traits
from runtime.drafters.model import ModelDrafter
from runtime.engine import Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.models.registry import load_registry
from runtime.speculative import active_drafters
from runtime.speculative.control.controller import Controller
from runtime.speculative.control.costs import PassCosts
from runtime.speculative.decoder import Decoder
from runtime.speculative.step import DraftingState
from runtime.speculative.target import TargetPasses
from tests.engine.test_company import GREEDY, QUESTIONS, alone, begun
from tests.speculative.test_loop import Timed


@pytest.mark.parametrize("shares", [True, False])
def test_a_draft_model_reads_a_long_prompt_after_the_first_token_between_passes_of_all(
    monkeypatch: pytest.MonkeyPatch, shares: bool
) -> None:
    monkeypatch.setattr(active_drafters, "PIECE", 16)
    monkeypatch.setattr(active_drafters, "IN_A_ROW", 0.0)
    opened = LoadedEngine(load_registry()["demo"], Options(threads=1, slots=4, drafters=("model",), fixed_k=3))
    if not shares:
        monkeypatch.setattr(opened.decoder.target, "shared", None)
    endless = Sampling(temperature=0.0, logit_bias=tuple((token, -math.inf) for token in opened.end_tokens))
    speaker, long = (QUESTIONS[0], endless, None), (" ".join(QUESTIONS) * 6, GREEDY, None)
    whole, order = alone(opened, [speaker, long], 200), list[str]()
    opened._loaded.backend._clear()
    (drafter,) = opened.decoder.active.drafters
    drafter.backend._clear()  # type: ignore[attr-defined]
    prefill = drafter.prefill
    monkeypatch.setattr(drafter, "prefill", lambda *args: order.append("draft model") or prefill(*args))  # type: ignore[func-returns-value]
    together, (first,) = begun(opened, [speaker], 200, least=4)
    order.clear()
    second = together.add(long, 200)
    while order.count("draft model") < 6:
        n, n_second = len(first.tokens), len(second.tokens)
        together.step()
        order += ["first reply"] * (len(first.tokens) > n) + ["second reply"] * (len(second.tokens) > n_second)
    pieces = [n for n, who in enumerate(order) if who == "draft model"]
    assert "second reply" in order[: pieces[0]]
    replies = ("first reply", "second reply") if shares else ("first reply",)  # else they have turns
    assert all(who in order[start:end] for start, end in pairwise(pieces) for who in replies)
    together.until(lambda: first.is_over and second.is_over)
    assert [first.tokens, second.tokens] == whole
    opened.close()


def test_what_reading_a_prompt_may_cost_follows_what_drafts_would_have_saved() -> None:
    state = DraftingState(200)
    assert state.may_read(0, 0.0)
    state.beginning = iter(())
    state.reading.at_once, state.reading.share = 0.5, 0.2
    assert not state.may_read(0, 10.0)  # the first token comes before
    assert state.may_read(1, 0.0)
    state.reading.seconds = 1.0  # which the time of decoding contains
    assert not state.may_read(5, 3.0)
    assert state.may_read(9, 4.0)


class Caching(Timed):
    """Keeps what it has read."""

    n_held = 0

    def forward(self, context: Tokens, draft: Draft = NO_DRAFT, exact: bool = True) -> Logits:
        self.n_held = len(context)
        return super().forward(context, draft, exact)

    def n_cached(self, context: Tokens, exact: bool = True) -> int:
        return min(self.n_held, len(context) - 1)


def test_tokens_that_are_generated_while_a_draft_model_reads_are_read_in_pieces_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(active_drafters, "IN_A_ROW", 0.0)
    clock, costs = Clock(), PassCosts()
    costs.set(1, 1.0)
    costs.set(9, 1.5)
    drafter, controller = ModelDrafter(Caching(clock, 0.05), 6), Controller(costs, {"model": Traits(0.05)}, max_k=8)
    loop = Decoder(TargetPasses(Timed(clock, 1.0)), [drafter], controller)
    controller.begin(0)  # values drafters, as at load
    state, context = DraftingState(200), np.ones(500, dtype=np.int32)
    while not loop.begin(state, context):
        assert "model" not in state.drafters
        context = np.ones(len(context) + 6, dtype=np.int32)
    assert "model" in state.drafters
    assert len(context) > 500 + active_drafters.NEGLIGIBLE
    assert drafter.n_uncached(context) <= active_drafters.NEGLIGIBLE
