"""Memory that runs short costs drafters, never a reply: every transition on toys, with an injected reader."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import numpy as np
import pytest

from bench.instruments.toy import ToyBackend, one_step
from runtime.backends.reloadable import ReloadableBackend
from runtime.core.drafter import Drafter, traits_of
from runtime.core.errors import ModelError
from runtime.core.pressure import MIB, Level, Thresholds
from runtime.drafters.model import ModelDrafter
from runtime.drafters.ngram import NgramDrafter
from runtime.engine import Sampling
from runtime.sampling.sampler import Sampler
from runtime.speculative.control.controller import Controller
from runtime.speculative.control.costs import PassCosts
from runtime.speculative.control.explain import kept
from runtime.speculative.decoder import Decoder
from runtime.speculative.degradation import Degradation
from runtime.speculative.step import DraftingState
from runtime.speculative.target import TargetPasses
from tests.support.memory import CRITICAL, FREE, OK, TIGHT, Machine
from tests.support.waiting import wait_for

GREEDY = Sampling(temperature=0)


def open_toy(opened: list[ToyBackend], gate: threading.Event | None = None) -> Callable[..., ToyBackend]:
    """Opens toys, the second and later ones when the gate is open."""

    def opens(stack: ExitStack, on_progress: Callable[[str, float], bool]) -> ToyBackend:
        if opened and gate is not None:
            while not gate.wait(0.01):
                if not on_progress("draft", 0.5):
                    raise KeyboardInterrupt
        opened.append(ToyBackend())
        stack.callback(opened[-1].close)
        return opened[-1]

    return opens


def go(what: str, share: float) -> bool:
    return True


class Bench:
    """A loop on toys, with a draft model and lookup, whose memory is told."""

    def __init__(self, opens: Callable[..., ToyBackend] | None = None, more: Sequence[Drafter] = ()) -> None:
        self.opened: list[ToyBackend] = []
        self.draft = ReloadableBackend(opens or open_toy(self.opened), go)
        costs = PassCosts()
        costs.set(1, 1.0)
        drafters = [self.make("ngram"), self.make("model"), *more]
        known = {drafter.name: traits_of(drafter, 0.05) for drafter in drafters}
        controller = Controller(costs, known, max_k=8, fixed_k=2)
        self.machine = Machine(Thresholds(calm_seconds=2))
        degradation = Degradation(self.machine.watch, self.make, self.draft, slots=3)
        self.target = ToyBackend()
        self.loop = Decoder(TargetPasses(self.target), drafters, controller, degradation=degradation)
        self.context = [1, 2]

    def make(self, name: str) -> Drafter:
        return NgramDrafter() if name == "ngram" else ModelDrafter(self.draft.backend, 6)

    def step(self, level: Level) -> str:
        """A step a second later; returns who drafted."""
        self.machine.now, self.machine.free = self.machine.now + 1, FREE[level]
        step = one_step(self.loop, np.array(self.context, dtype=np.int32), Sampler(GREEDY), len(self.context) - 2, 10)
        self.context += step.tokens
        return step.drafter

    def until(self, names: list[str]) -> None:
        """Steps with all memory free until these are back."""
        wait_for(
            lambda: [drafter.name for drafter in self.loop.active.drafters] == names, meanwhile=lambda: self.step(OK)
        )

    def is_plain_text(self) -> bool:
        """Is the text what the target alone says?"""
        said = [1, 2]
        while len(said) < len(self.context):
            said.append(int(ToyBackend().row(said).argmax()))
        return said == self.context


def test_tight_memory_forgets_conversations_until_there_is_room_again() -> None:
    bench = Bench()
    bench.step(TIGHT)
    assert bench.target.slots == 1
    bench.until(["ngram", "model"])
    assert bench.target.slots == 3


def test_tight_memory_frees_the_draft_model_and_lookup_goes_on() -> None:
    bench = Bench()
    assert bench.step(OK) == "model"
    bench.step(TIGHT)
    assert bench.opened[0].closed
    assert not bench.draft.is_open
    assert [drafter.name for drafter in bench.loop.active.drafters] == ["ngram"]
    assert "ngram" in {bench.step(TIGHT) for _ in range(12)}
    why = bench.loop.why_plain()
    assert why.code == "memory"
    assert (
        "the draft model was unloaded, because this machine had 1,000 MiB of memory left, where 1,280 MiB should "
        "stay free" in why.text
    )
    assert bench.is_plain_text()


def test_a_draft_model_that_rests_is_opened_by_a_reply_that_finds_room_for_it() -> None:
    bench = Bench()
    bench.step(OK)
    assert bench.loop.active.rest()
    assert not bench.draft.is_open
    assert not bench.loop.active.rest()  # there is none to close
    for _ in range(3):  # between replies
        bench.machine.now += 1
        bench.loop.active.degrade()
    assert not bench.draft.is_open
    assert bench.loop.active.given_up == "another model needed the memory of its drafts"
    bench.machine.watch.reserve = (FREE[OK] - 1500) * MIB  # the other model left no room for it
    for _ in range(3):
        bench.step(OK)
    assert not bench.draft.is_open
    bench.machine.watch.reserve = 0
    bench.until(["ngram", "model"])
    assert (bench.draft.is_open, bench.loop.active.given_up) == (True, "")
    assert bench.is_plain_text()


class OwnLayers(Drafter):
    """Guesses from what the target has in memory anyway."""

    name = "layerskip"


def test_tight_memory_takes_nothing_from_drafters_without_memory_of_their_own() -> None:
    own = OwnLayers()
    bench = Bench(more=[own])
    bench.step(TIGHT)
    assert own in bench.loop.active.drafters
    assert {"ngram", "layerskip"} == bench.loop.controller.states.keys()


def test_critical_memory_leaves_plain_decode_and_empty_drafters() -> None:
    bench = Bench()
    lookup = bench.loop.active.drafters[0]
    assert {bench.step(CRITICAL) for _ in range(9)} == {"none"}
    assert (bench.loop.active.drafters, bench.loop.controller.states, bench.opened[0].closed) == ([], {}, True)
    assert "nothing is guessed ahead, because this machine had 300 MiB" in bench.loop.why_plain().text
    for _ in range(9):
        bench.step(TIGHT)
    assert [drafter.name for drafter in bench.loop.active.drafters] == ["ngram"]
    assert bench.loop.active.drafters[0] is not lookup
    assert bench.is_plain_text()


def test_everything_comes_back_with_what_was_learned_and_a_reason_until_the_next_reply() -> None:
    bench = Bench()
    bench.step(OK)
    known = bench.loop.controller.states["model"]
    bench.step(CRITICAL)
    bench.until(["ngram", "model"])
    assert bench.loop.controller.states["model"] is known
    assert bench.draft.is_open
    assert len(bench.opened) == 2
    assert bench.loop.why_plain().code == "memory"
    bench.loop.begin(DraftingState(9), np.array(bench.context, dtype=np.int32))
    assert bench.loop.why_plain().code != "memory"
    assert bench.is_plain_text()


def test_a_draft_that_is_being_opened_is_given_up_again() -> None:
    opened: list[ToyBackend] = []
    bench = Bench(open_toy(opened, threading.Event()))
    bench.step(TIGHT)
    for _ in range(9):
        bench.step(OK)
    assert not bench.draft.is_open
    bench.step(TIGHT)
    assert len(opened) == 1
    assert [drafter.name for drafter in bench.loop.active.drafters] == ["ngram"]
    assert bench.is_plain_text()


@pytest.mark.parametrize("broken", [ModelError, MemoryError, OSError])
def test_a_draft_that_cannot_be_opened_again_costs_nothing_but_itself(broken: type[Exception]) -> None:
    closed: list[str] = []

    def opens(stack: ExitStack, on_progress: Callable[[str, float], bool]) -> ToyBackend:
        stack.callback(closed.append, "weights")
        if closed:
            raise broken("draft.gguf is gone")
        return ToyBackend()

    bench = Bench(opens)
    bench.step(TIGHT)
    assert closed == ["weights"]
    wait_for(lambda: not bench.loop.active.given_up, meanwhile=lambda: bench.step(OK))
    assert closed == ["weights", "weights"]
    assert [drafter.name for drafter in bench.loop.active.drafters] == ["ngram"]
    bench.loop.begin(DraftingState(9), np.array(bench.context, dtype=np.int32))
    assert bench.loop.why_plain().code == "draft-error"
    assert "draft.gguf is gone" in bench.loop.why_plain().text
    assert bench.is_plain_text()


def test_closing_while_a_draft_is_on_its_way_closes_it() -> None:
    opened: list[ToyBackend] = []
    gate = threading.Event()
    draft = ReloadableBackend(open_toy(opened, gate), go)
    draft.close()
    draft.reopen()
    assert not draft.is_open
    gate.set()
    draft.close()
    draft.close()
    assert all(toy.closed for toy in opened)
    assert not draft.is_open


def test_what_was_learned_of_drafters_that_are_away_is_kept_at_the_end() -> None:
    bench = Bench()
    bench.step(CRITICAL)
    assert kept(bench.loop.controller).keys() >= {"ngram", "model"}
