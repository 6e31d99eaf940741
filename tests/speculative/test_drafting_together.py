"""Drafts of several sequences that are made together, where not all sequences have the same drafter."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import pytest

from bench.instruments.toy import ToyBackend
from runtime.core.draft import Logits, Tokens
from runtime.core.drafter import Traits
from runtime.core.errors import ModelError
from runtime.drafters.model import ModelDrafter
from runtime.drafters.ngram import NgramDrafter
from runtime.sampling.sampler import Sampler
from runtime.sampling.settings import Sampling
from runtime.speculative.control.controller import Controller
from runtime.speculative.control.costs import PassCosts
from runtime.speculative.decoder import Decoder
from runtime.speculative.step import DraftingState, StepInput
from runtime.speculative.target import TargetPasses

K = 3


class Alike(ModelDrafter):
    """Drafts its own token again and again, in passes that several sequences share."""

    def __init__(self, name: str, token: int, fails: bool = False) -> None:
        super().__init__(ToyBackend(), 6, shared=SimpleNamespace(fits=lambda lengths: True))  # type: ignore[arg-type]
        self.name, self.token, self.fails, self.n_shared = name, token, fails, list[int]()

    def forward_all(self, contexts: Sequence[Tokens]) -> Sequence[Logits]:
        if self.fails:
            raise ModelError(f"{self.name} fell over")
        self.n_shared.append(len(contexts))
        row = np.zeros((1, 6), dtype=np.float32)
        row[0, self.token] = 9.0
        return [row] * len(contexts)


def decoder_of(*drafters: Alike) -> Decoder:
    costs = PassCosts()
    costs.set(1, 1.0)
    known = {each.name: Traits(0.05) for each in drafters}
    return Decoder(TargetPasses(ToyBackend()), drafters, Controller(costs, known, max_k=8, fixed_k=K))


def asked(name: str, end: int = -1) -> StepInput:
    """The step of a sequence for which one drafter takes part, and whose reply ends with the token `end`."""
    state, context = DraftingState(drafters={name}), np.array([1, 2], dtype=np.int32)
    return StepInput(state, context, Sampler(Sampling(temperature=0)), 0, 9, is_end=lambda token: token == end)


@pytest.mark.parametrize("order", [("one", "two"), ("two", "one"), ("one", "two", "one")])
def test_each_sequence_is_drafted_for_by_its_own_drafter(order: tuple[str, ...]) -> None:
    tokens = {"one": 1, "two": 2}
    drafters = [Alike(name, token) for name, token in tokens.items()]
    errors, ready = decoder_of(*drafters).drafting.propose([asked(name) for name in order])
    assert not errors
    for name, step in zip(order, ready, strict=True):
        assert step.draft.tokens
        assert set(step.draft.tokens) == {tokens[name]}
        assert [each.name for each in step.proposals] == [name]
    assert sum(len(step.draft.tokens) for step in ready) <= 8
    assert {each.name: max(each.n_shared) for each in drafters} == {name: order.count(name) for name in tokens}


def test_one_that_fails_is_dropped_and_the_others_sequences_have_their_drafts() -> None:
    broken, sound = Alike("one", 1, fails=True), Alike("two", 2)
    decoder = decoder_of(broken, sound)
    errors, (first, second) = decoder.drafting.propose([asked("one"), asked("two")])
    assert (errors, first.draft.tokens, second.draft.tokens) == ({}, (), (2,) * K)
    assert decoder.active.drafters == [sound]


def test_no_pass_drafts_after_the_end_of_a_reply() -> None:
    drafter = Alike("one", 1)
    _, together = decoder_of(drafter).drafting.propose([asked("one", end=1), asked("one", end=1)])
    assert [step.draft.tokens for step in together] == [(1,), (1,)]
    assert drafter.n_shared == [2]
    decoder = decoder_of(drafter)
    (_, (whole,)), (_, (ended,)) = (decoder.drafting.propose([asked("one", end)]) for end in (-1, 1))
    assert (len(whole.draft), ended.draft.tokens) == (K, whole.draft.tokens[:1])


def test_a_lookup_ends_where_the_reply_does() -> None:
    drafter, text = NgramDrafter(), np.array([1, 2, 3, 4, 5, 1, 2, 3], dtype=np.int32)
    costs = PassCosts()
    costs.set(1, 1.0)
    controller = Controller(costs, {"ngram": Traits(0.0, is_model_free=True)}, max_k=8, fixed_k=K)
    decoder = Decoder(TargetPasses(ToyBackend()), [drafter], controller)
    for end, drafted in ((-1, (4, 5, 1)), (5, (4, 5))):
        _, (step,) = decoder.drafting.propose([asked("ngram", end)._replace(context=text)])
        assert step.draft.tokens == drafted
        assert len(step.proposals[0].confidences) == len(step.proposals[0].tokens) >= len(drafted)
