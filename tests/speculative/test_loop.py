"""A step goes on whatever a drafter does; passes take scripted seconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from bench.instruments.toy import Clock, ToyBackend, one_step, state_of
from runtime.core.draft import NO_DRAFT, Draft, Logits, Tokens
from runtime.core.drafter import Budget, Drafter, Traits
from runtime.core.errors import ModelError
from runtime.drafters.model import ModelDrafter
from runtime.sampling.sampler import Sampler
from runtime.sampling.settings import Sampling
from runtime.speculative.active_drafters import PIECE
from runtime.speculative.control.controller import Controller
from runtime.speculative.control.costs import PassCosts
from runtime.speculative.control.explain import kept
from runtime.speculative.control.tuning import TUNING
from runtime.speculative.decoder import Decoder
from runtime.speculative.step import DraftingState
from runtime.speculative.target import TargetPasses

GREEDY = Sampling(temperature=0)


class Timed(ToyBackend):
    """Its passes take so many seconds."""

    def __init__(self, clock: Clock, seconds: float, n_ctx: int = 1024) -> None:
        super().__init__(n_ctx=n_ctx)
        self.clock, self.seconds = clock, seconds

    def forward(self, context: Tokens, draft: Draft = NO_DRAFT, exact: bool = True) -> Logits:
        self.clock.advance(self.seconds)
        return super().forward(context, draft, exact)


class Broken(Drafter):
    """Fails the second time it is asked."""

    name = "model"

    def __init__(self) -> None:
        self.n_asked, self.closed = 0, False

    def propose(self, context: Tokens, budget: Budget) -> Draft:
        self.n_asked += 1
        if self.n_asked == 2:
            raise ModelError("the draft model fell over")
        return Draft((0,)) if budget.should_continue(0.9) else Draft()

    def close(self) -> None:
        self.closed = True


def loop_with(drafter: Drafter, fixed_k: int | None = 2) -> Decoder:
    costs = PassCosts()
    costs.set(1, 1.0)
    return Decoder(
        TargetPasses(ToyBackend(n_ctx=64)),
        [drafter],
        Controller(costs, {drafter.name: Traits(0.05)}, max_k=8, fixed_k=fixed_k),
    )


def test_a_drafter_that_breaks_is_dropped_with_a_reason_and_decoding_goes_on() -> None:
    drafter = Broken()
    loop, context = loop_with(drafter), [1, 2]
    for _ in range(5):
        context += one_step(loop, np.array(context, dtype=np.int32), Sampler(GREEDY), len(context) - 2, 10).tokens
    assert drafter.closed
    assert loop.active.drafters == []
    assert (loop.why_plain().code, "fell over" in loop.why_plain().text) == ("draft-error", True)
    expected = [1, 2]
    while len(expected) < len(context):
        expected.append(int(ToyBackend().row(expected).argmax()))
    assert context == expected


def test_a_draft_never_reaches_past_the_limit_or_the_context() -> None:
    loop = loop_with(ModelDrafter(ToyBackend(), 6), fixed_k=8)
    context = np.ones(60, dtype=np.int32)
    assert one_step(loop, context, Sampler(GREEDY), 0, 3).n_drafted == 2
    assert one_step(loop, context, Sampler(GREEDY), 0, 100).n_drafted == 4
    assert one_step(loop, np.ones(64, dtype=np.int32), Sampler(GREEDY), 0, 100).n_drafted == 0


def test_seconds_add_up(clock: Clock) -> None:
    loop = loop_with(ModelDrafter(Timed(clock, 0.05), 6))
    loop.target.backend = Timed(clock, 1.0)
    step = one_step(loop, np.array([1, 2], dtype=np.int32), Sampler(GREEDY), 0, 9)
    assert (step.draft_seconds, step.verify_seconds, step.seconds) == pytest.approx((0.1, 1.0, 1.1))
    assert (step.drafter, step.n_drafted) == ("model", 2)


def prepared(clock: Clock, n_prompt: int, n_reply: int, is_cancelled: bool = False) -> tuple[Decoder, ToyBackend]:
    draft, costs = Timed(clock, 0.05), PassCosts()
    costs.set(1, 1.0)
    costs.set(9, 1.5)
    loop = Decoder(
        TargetPasses(Timed(clock, 1.0)), [ModelDrafter(draft, 6)], Controller(costs, {"model": Traits(0.05)}, max_k=8)
    )
    loop.controller.begin(0)  # values drafters, as at load
    state, prompt = DraftingState(n_reply), np.ones(n_prompt, dtype=np.int32)
    while not loop.begin(state, prompt, is_cancelled=lambda: is_cancelled):
        pass
    return loop, draft


def test_what_rests_in_one_reply_drafts_in_another_that_is_made_in_turns_with_it(clock: Clock) -> None:
    loop, _draft = prepared(clock, n_prompt=900, n_reply=2)
    long, short = np.ones(900, dtype=np.int32), np.ones(30, dtype=np.int32)
    resting, drafting = state_of(loop), DraftingState(2)
    loop.begin(drafting, short)
    for _ in range(2):
        assert one_step(loop, long, Sampler(GREEDY), 0, 9, resting).drafter == "none"
        assert "900 tokens" in loop.why_plain().text
        assert one_step(loop, short, Sampler(GREEDY), 0, 9, drafting).drafter == "model"


def test_a_long_prompt_is_taken_in_by_the_draft_model_only_where_the_reply_repays_it(clock: Clock) -> None:
    loop, draft = prepared(clock, n_prompt=900, n_reply=200)
    assert (draft.n_passes, state_of(loop).left_out) == (-(-900 // PIECE), None)
    loop, draft = prepared(clock, n_prompt=900, n_reply=2)
    assert (draft.n_passes, loop.why_plain().code) == (0, "cost")
    assert "900 tokens" in loop.why_plain().text
    assert one_step(loop, np.ones(900, dtype=np.int32), Sampler(GREEDY), 0, 9).drafter == "none"
    loop.begin(DraftingState(2), np.ones(30, dtype=np.int32))
    assert one_step(loop, np.ones(30, dtype=np.int32), Sampler(GREEDY), 0, 9).drafter == "model"


def test_taking_in_can_be_cancelled(clock: Clock) -> None:
    assert prepared(clock, n_prompt=900, n_reply=200, is_cancelled=True)[1].n_passes == 0


class Silent(Drafter):
    """Looks something up, which takes a while, and never finds it."""

    name = "ngram"
    is_model_free = True

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def propose(self, context: Tokens, budget: Budget) -> Draft:
        self.clock.advance(8e-6)
        return NO_DRAFT


def test_steps_in_which_nobody_need_be_asked_are_made_without_until_a_pass_takes_unusually_long(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, costs, called = Timed(clock, 1e-3), PassCosts(), Counter[str]()
    costs.set(1, 1e-3)
    controller = Controller(costs, {"ngram": Traits(8e-6, is_model_free=True)}, max_k=8)
    loop = Decoder(TargetPasses(target), [Silent(clock)], controller)
    for name in ("begin", "learn"):
        monkeypatch.setattr(controller, name, counted(getattr(controller, name), name, called))

    def make(n_steps: int) -> tuple[int, int]:
        """How many of so many steps begin with a look at the controller, and end with one."""
        called.clear()
        for _ in range(n_steps):
            one_step(loop, np.array([1, 2], dtype=np.int32), Sampler(GREEDY), 0, 9)
        return called["begin"], called["learn"]

    assert make(4) == (4, 4)
    assert make(60) == (20, 20)  # every third is asked: three thousandths of the time is what that may take
    assert kept(controller)["seconds for probes"] == pytest.approx(1e-3 + TUNING.probe_share * clock.now)
    while make(1) != (1, 1):
        pass
    target.seconds = 3e-3
    assert make(1) == (0, 1)  # it is learned at once


class Rebuilding(Timed):
    """Its pass of one row takes longer where the one before had several."""

    n_rows = 1

    def forward(self, context: Tokens, draft: Draft = NO_DRAFT, exact: bool = True) -> Logits:
        self.seconds = 1.3 if self.n_rows > 1 + len(draft.tokens) else 1.0
        self.n_rows = 1 + len(draft.tokens)
        return super().forward(context, draft, exact)


class EveryThird(Silent):
    """Finds something every third time."""

    n_asked = 0

    def propose(self, context: Tokens, budget: Budget) -> Draft:
        self.n_asked += 1
        return (
            Draft((0, 0)) if self.n_asked % 3 == 0 and budget.should_continue(0.9) else super().propose(context, budget)
        )


def test_what_a_plain_pass_takes_longer_after_a_draft_is_learned_as_the_drafts_cost(clock: Clock) -> None:
    costs = PassCosts()
    costs.set(1, 1.0)
    controller = Controller(costs, {"ngram": Traits(8e-6, is_model_free=True)}, max_k=8, fixed_k=2)
    loop = Decoder(TargetPasses(Rebuilding(clock, 1.0)), [EveryThird(clock)], controller)
    for _ in range(300):
        one_step(loop, np.array([1, 2], dtype=np.int32), Sampler(GREEDY), 0, 9)
    assert costs.after == pytest.approx(0.3, rel=0.1)
    assert costs.seconds(1, 2) == pytest.approx(1.0, rel=0.01)
    terms = controller.begin(2)
    assert terms.seconds[1] == pytest.approx(terms.shares[1] + 0.3, rel=0.1)


def counted(function: Callable[..., object], name: str, called: Counter[str]) -> Callable[..., object]:
    """The function, whose calls are counted."""

    def call(*given: object, **named: object) -> object:
        called[name] += 1
        return function(*given, **named)

    return call


@pytest.mark.parametrize("is_far", [True, False])
def test_what_workers_are_asked_once_is_not_what_passes_cost(clock: Clock, is_far: bool) -> None:
    loop = loop_with(ModelDrafter(ToyBackend(), 6))
    loop.target.backend, loop.controller.passes.is_far = Timed(clock, 4.0), is_far
    before = loop.controller.passes.costs.seconds(3, 2)
    one_step(loop, np.array([1, 2], dtype=np.int32), Sampler(GREEDY), 0, 9)
    assert (loop.controller.passes.costs.seconds(3, 2) > before) != is_far
    one_step(loop, np.array([1, 2], dtype=np.int32), Sampler(GREEDY), 0, 9)
    assert loop.controller.passes.costs.seconds(3, 2) > before
