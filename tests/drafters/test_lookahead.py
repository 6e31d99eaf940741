"""Lookahead without weights: the window's columns, what is harvested from them, its shape, its price; and the demo
pair's own text with it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from bench.instruments.toy import ToyBackend, one_step
from runtime.core.draft import NO_DRAFT, Draft, Tokens
from runtime.core.drafter import Traits
from runtime.drafters.lookahead import LookaheadDrafter, Pool, WindowShape, best_shape
from runtime.engine import Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.loading import opening
from runtime.models.registry import load_registry
from runtime.sampling.sampler import Sampler
from runtime.speculative.control.controller import Controller
from runtime.speculative.control.costs import PassCosts
from runtime.speculative.control.drafter_state import DraftOutcome
from runtime.speculative.decoder import Decoder
from runtime.speculative.target import TargetPasses
from tests.drafters.test_drafters import budget
from tests.engine.test_demo_pair import PROMPTS, ask
from tests.support.control import asks, begin, learn

GREEDY = Sampling(temperature=0)


class Cycle(ToyBackend):
    """Says 0, 1, 2, ... round and round."""

    def __init__(self, n_vocab: int) -> None:
        super().__init__(n_vocab)
        self.table = np.broadcast_to(np.roll(np.eye(n_vocab, dtype=np.float32), 1, axis=1), (n_vocab, n_vocab, n_vocab))


def tokens(*said: int) -> Tokens:
    return np.array(said, dtype=np.int32)


def steps(drafter: LookaheadDrafter, target: ToyBackend, context: list[int], n: int) -> list[Draft]:
    """Drafts of steps that add a token each; `context` grows."""
    drafts = []
    for _ in range(n):
        drafts.append(drafter.propose(tokens(*context), budget(16)))
        logits = target.forward(tokens(*context), drafts[-1])
        drafter.observe(drafts[-1], logits)
        context.append(int(logits[0].argmax()))
    return drafts


def paths(draft: Draft) -> list[list[int]]:
    """Tokens from the root to each node."""
    found: list[list[int]] = []
    for node, token in enumerate(draft.tokens):
        found.append([*(found[draft.parent(node)] if draft.parent(node) >= 0 else []), token])
    return found


@pytest.mark.parametrize("shape", [WindowShape(1, 2), WindowShape(3, 2), WindowShape(2, 3), WindowShape(3, 4)], ids=str)
def test_what_is_harvested_is_what_the_target_says_after_each_column(shape: WindowShape) -> None:
    target, drafter, context = ToyBackend(n_vocab=9), LookaheadDrafter(shape), [1, 2]
    for _ in range(6):
        draft = drafter.propose(tokens(*context), budget(64))
        columns = drafter._columns()
        assert all(list(column) in paths(draft) for column in columns)
        logits = target.forward(tokens(*context), draft)
        drafter.observe(draft, logits)
        for column in columns:
            said = int(target.row([*context, *column]).argmax())
            *known, last = (*column, said)[-shape.order :]
            assert (*known[1:], last) in dict(drafter._pool.after(known[0]))
        context.append(int(logits[0].argmax()))


def test_a_pooled_ngram_is_verified_first_and_brings_several_tokens_per_pass() -> None:
    loop = Decoder(TargetPasses(Cycle(5)), [LookaheadDrafter(WindowShape(2, 3))], controller(fixed_k=4))
    context, passes = [0], 0
    while len(context) < 60:
        context += one_step(loop, tokens(*context), Sampler(GREEDY), len(context) - 1, 99).tokens
        passes += 1
    assert context == [i % 5 for i in range(len(context))]
    assert passes < 30


def test_the_window_moves_with_the_text_and_begins_anew_where_that_jumps() -> None:
    drafter, context = LookaheadDrafter(WindowShape(4, 3)), [0]
    steps(drafter, Cycle(12), context, 3)
    before = [level[1:] for level in drafter._levels]
    drafter.propose(tokens(*context, 7), budget(16))
    assert [level[:3] for level in drafter._levels] == before
    drafter.propose(tokens(9, 9), budget(16))
    assert {token for level in drafter._levels for token in level} == {9}
    drafter.begin(tokens(3), ())
    drafter.propose(tokens(3, 3, 3), budget(16))
    assert {token for level in drafter._levels for token in level} == {3}


def test_where_there_is_no_room_for_the_window_nothing_is_harvested() -> None:
    drafter, target, context = (
        LookaheadDrafter(WindowShape(3, 3)),
        Cycle(40),
        np.arange(20, dtype=np.int32),
    )  # a window of six different tokens
    for k in range(6):
        draft = drafter.propose(context, budget(k))
        assert len(draft) <= k
        drafter.observe(draft, target.forward(context, draft))
    drafter.observe(NO_DRAFT, target.forward(context))
    assert not any(drafter._pool.after(token) for token in range(40))


def test_siblings_in_its_tree_differ() -> None:
    rng = np.random.default_rng(1)
    drafter, context = LookaheadDrafter(WindowShape(4, 3)), rng.integers(0, 3, 8).tolist()
    for draft in steps(drafter, ToyBackend(n_vocab=3), context, 30):
        places = [(draft.parent(node), token) for node, token in enumerate(draft.tokens)]
        assert len(set(places)) == len(places)


def test_the_pool_keeps_the_newest_and_says_the_likeliest_first() -> None:
    pool = Pool(2)
    for ngram in ((1, 2, 3), (1, 4, 5), (1, 2, 3), (1, 6, 7), (2, 2, 2)):
        pool.add(ngram)
    assert pool.after(1) == [((2, 3), 2), ((6, 7), 1)]
    assert pool.after(3) == []


def test_a_refused_ngram_leaves_the_window_alone() -> None:
    drafter, context = LookaheadDrafter(WindowShape(2, 3)), [0]
    steps(drafter, Cycle(3), context, 9)
    draft = drafter.propose(tokens(*context), budget(16, lambda confidence: False))
    assert {tuple(path) for path in paths(draft)} == {
        column[:n] for column in drafter._columns() for n in range(1, len(column) + 1)
    }


def test_the_shape_follows_from_what_passes_cost() -> None:
    flat, gain = best_shape([1.0] * 17)
    assert (flat.n_rows <= 16, gain) == (True, flat.tokens_per_step)
    assert flat.tokens_per_step > 1.4
    jumps, _ = best_shape([1.0] * 9 + [3.0] * 8)  # as a GPU does
    assert 4 < jumps.n_rows <= 8
    assert best_shape([float(n) for n in range(1, 18)])[1] < 1
    assert best_shape([1.0] * 3)[0] == WindowShape(1, 2)


def controller(passes: Sequence[float] = (1.0,) * 9, fixed_k: int | None = None, window_rows: int = 0) -> Controller:
    costs = PassCosts()
    for width, seconds in enumerate(passes, start=1):
        costs.set(width, seconds)
    return Controller(costs, {"lookahead": Traits(1e-6, n_window_rows=window_rows)}, max_k=8, fixed_k=fixed_k)


def test_the_rows_of_the_window_are_part_of_its_price() -> None:
    dear, cheap = controller([1.0, 1.2, 1.4, 1.6, 1.8], window_rows=4), controller([1.0, 1.2, 1.4, 1.6, 1.8])
    dear.begin(0)
    assert cheap.choose(cheap.begin(0), "lookahead").decision.asks
    assert cheap.states["lookahead"].expected_gain > dear.states["lookahead"].expected_gain
    free, none = controller(window_rows=4), controller()  # rows that cost nothing
    for each in (free, none):
        each.begin(0)
    assert free.states["lookahead"].expected_gain == none.states["lookahead"].expected_gain


def test_where_it_brings_nothing_it_costs_next_to_nothing() -> None:
    """By the controller's ledger, when four rows ride along that make a pass take three times as long, and no guess is
    ever right.
    """
    control, lost = controller([1.0, 1.5, 2.0, 2.5, 3.0], window_rows=4), 0.0
    for _ in range(20_000):
        begin(control, 0)
        asked = asks(control, "lookahead")
        lost += 2.0 * asked
        scored = [DraftOutcome("lookahead", [0.5], 1, 0, 1e-6, 0.0, 0, 1)] if asked else []
        learn(control, scored, 1, 0.0, 1.0 + 2.0 * asked, 1.0 + 2.0 * asked)
    assert lost < 0.01 * control.exploration.decode_seconds


def test_it_is_left_out_with_a_reason_where_passes_cost_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "best_shape", lambda passes: (WindowShape(1, 2), 0.4))
    engine = LoadedEngine(load_registry()["demo"], Options(drafters=("lookahead",), threads=1))
    stats = ask(engine, PROMPTS[0])[2]
    assert (stats.draft_n, stats.reason.code if stats.reason else "") == (0, "cost")
    assert "would reach 0.40 times plain decode" in engine.decoder.why_plain().text
    assert not engine._loaded.backend.can_branch  # room for trees would make every pass dearer
    engine.close()


def test_beside_layerskip_it_is_left_out_with_a_reason() -> None:
    engine = LoadedEngine(load_registry()["demo"], Options(drafters=("layerskip", "lookahead"), threads=1, fixed_k=3))
    assert {drafter.name for drafter in engine.decoder.active.drafters} == {"layerskip"}
    assert "the model's own look ahead is left out, because its trees leave the cache out of order" in str(
        engine.decoder.active.failed
    )
    engine.close()
