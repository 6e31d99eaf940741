"""Early exit on the real library: early logits are those of a pruned model, verifying is a full pass, whatever was
decoded before.
"""

from __future__ import annotations

from collections.abc import Iterator

import llama_cpp.llama_cpp as lib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.instruments.shapes import write_random
from demo.evaluate import keep_first_layers
from runtime.backends import llama
from runtime.backends.heads import graph, nodes
from runtime.backends.heads.early_exit import ExitCheck
from runtime.backends.model import LlamaModel
from runtime.core.draft import Draft
from runtime.core.errors import ContextError, ModelError
from tests.support.early_exit import CACHES, EXACT, EXITS, MOST, N_CTX, SHAPE, SHORT, Backends, Walk, array


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, LlamaModel]]:
    """Layers -> a random model, whole and cut."""
    folder = tmp_path_factory.mktemp("early")
    whole = write_random(folder / "whole.gguf", SHAPE)
    opened = {SHAPE.layers: LlamaModel(whole)}
    for layers in EXITS:
        keep_first_layers(whole, layers, SHAPE.layers, folder / f"{layers}.gguf")
        opened[layers] = LlamaModel(folder / f"{layers}.gguf")
    yield opened
    for model in opened.values():
        model.close()


@pytest.fixture(scope="module")
def backends(models: dict[int, LlamaModel]) -> Iterator[dict[str, Backends]]:
    opened = {cache: Backends(models, cache) for cache in CACHES}
    yield opened
    for each in opened.values():
        each.close()


@pytest.fixture
def fresh(models: dict[int, LlamaModel]) -> Iterator[Backends]:
    """For a test that does harm."""
    opened = Backends(models, "Q8_0, flash")
    yield opened
    opened.close()


@pytest.mark.parametrize("cache", CACHES)
@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_early_logits_are_a_pruned_models_and_verifying_is_a_full_pass(
    backends: dict[str, Backends], cache: str, seed: int
) -> None:
    """Drafts accepted, cut, changed and lengthened, edits and other exit layers."""
    walk = Walk(backends[cache], seed, SHORT)
    for _ in range(12):
        walk.step()
    reused = walk.all.early.n_reused
    walk.all.early.early.forward(array(walk.context))
    walk.verify(Draft((5,)))
    assert walk.all.early.n_reused == reused + 2


@pytest.mark.parametrize("cache", EXACT)
@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_the_same_for_prompts_longer_than_batches_and_blocks(
    backends: dict[str, Backends], cache: str, seed: int
) -> None:
    walk = Walk(backends[cache], seed, N_CTX - 2 * MOST - 4)
    for _ in range(8):
        walk.step()


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_an_interrupted_pass_leaves_nothing_behind(backends: dict[str, Backends], seed: int) -> None:
    """Before a pass, after it, or while the scheduler asks about a node."""
    walk, rng, decode = Walk(backends["Q8_0, flash"], seed, 100), np.random.default_rng(seed), lib.llama_decode
    early = walk.all.early

    def interrupted(context: object, batch: object) -> int:
        when = rng.random() if context == early.handle else 1.0
        if when < 0.05:
            raise KeyboardInterrupt
        if when < 0.1 and early.nodes._script:
            early.nodes._script[-1] = early.nodes._script[-1][0], lambda: (_ for _ in ()).throw(KeyboardInterrupt)
        code = int(decode(context, batch))
        if 0.1 < when < 0.15:
            raise KeyboardInterrupt
        return code

    n_interrupted = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(llama.lib, "llama_decode", interrupted)
        for _ in range(12):
            try:
                walk.step()
            except KeyboardInterrupt:
                n_interrupted += 1
                assert (early.seat.n_held, early._n_low) == (0, 0)
    for _ in range(4):
        walk.step()


def test_only_the_upper_layers_of_a_draft_are_computed_and_nothing_twice(backends: dict[str, Backends]) -> None:
    target, context = backends["Q8_0, flash"].early, array(list(range(40)))
    target.exit_at(2)
    target.forward(context[:-1])
    before, reused = target.n_decoded, target.n_reused
    for i in range(3):
        target.early.forward(array([*range(40), 7, 8, 9][: 40 + i]))
    assert target.n_decoded == before + 3
    assert target.early.n_cached(array([*range(40), 7, 8, 9])) == 42
    assert target.n_cached(array([*range(40), 7, 8, 9])) == 39  # of those, with all layers
    target.forward(context, Draft((7, 8, 9)))
    assert (target.n_decoded, target.n_reused) == (before + 3 + 1 + 4, reused + 4)
    target.forward(array([*range(40), 7, 8, 3]))
    assert target.n_decoded == before + 3 + 1 + 4 + 1


def test_a_plain_pass_is_not_made_from_early_rows(backends: dict[str, Backends]) -> None:
    """The controller wants to see what it costs."""
    both, context = backends["Q8_0, flash"], array(list(range(30)))
    both.early.early.forward(context)
    reused = both.early.n_reused
    assert np.array_equal(both.early.forward(context).copy(), both.full.forward(context))
    assert both.early.n_reused == reused


def test_where_other_cells_would_be_filled_everything_is_computed(backends: dict[str, Backends]) -> None:
    both, context = backends["Q8_0, flash"], array(list(range(30)))
    both.early.early.forward(context)
    both.early.early.forward(array([*range(30), 5]))
    both.early._cells += 1
    both.early._rows[:] = 0
    reused = both.early.n_reused
    assert np.array_equal(both.early.forward(context, Draft((5,))).copy(), both.full.forward(context, Draft((5,))))
    assert both.early.n_reused == reused


def test_a_graph_that_was_not_learned_is_left_alone_and_drafts_are_verified_in_full(fresh: Backends) -> None:
    both, context = fresh, array(list(range(30)))
    both.early.early.forward(context)
    both.early.nodes._usual = both.early.nodes._usual + 1
    assert np.array_equal(both.early.forward(context, Draft((5,))).copy(), both.full.forward(context, Draft((5,))))
    assert not both.early.reuses
    with pytest.raises(ModelError, match="not the one recorded at load"):
        both.early.early.forward(context)
    assert np.array_equal(both.early.forward(context).copy(), both.full.forward(context))


def test_where_the_scheduler_cannot_be_reached_it_asks_in_every_pass(
    models: dict[int, LlamaModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph, "scheduler_of", lambda context: None)
    both = Backends(models, "Q8_0, flash")
    walk = Walk(both, 1, 100)
    for _ in range(10):
        walk.step()
    both.close()


@pytest.mark.parametrize("cache", CACHES)
def test_the_check_finds_nothing_wrong(backends: dict[str, Backends], cache: str) -> None:
    found = backends[cache].early.check()
    assert not found.problem
    assert found.reuses or cache not in EXACT
    backends[cache].early.reuses = True


def test_the_check_finds_rows_that_are_not_what_they_were(fresh: Backends, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then drafts are verified in full."""
    both, read = fresh, nodes.Nodes._read

    def slightly_off(self: nodes.Nodes, rows: np.ndarray, cells: np.ndarray) -> bool:
        done = read(self, rows, cells)
        rows *= np.float32(1.001)
        return done

    monkeypatch.setattr(nodes.Nodes, "_read", slightly_off)
    assert both.early.check() == ExitCheck("", reuses=False)
    assert not both.early.reuses
    monkeypatch.undo()
    walk = Walk(both, 2, 100)
    walk.step()
    assert both.early.n_reused == MOST + 1  # only the check's own


def test_the_check_finds_layers_that_were_needed_after_all(fresh: Backends, monkeypatch: pytest.MonkeyPatch) -> None:
    both, skip = fresh, nodes.Nodes._skip
    monkeypatch.setattr(
        nodes.Nodes,
        "_skip",
        lambda self, places: skip(self, self._facts[len(self._usual) // 3 : 2 * len(self._usual) // 3]),
    )
    assert both.early.check().problem


def test_what_does_not_fit_is_refused_early_too(backends: dict[str, Backends]) -> None:
    early = backends["Q8_0, flash"].early.early
    with pytest.raises(ContextError, match="Shorten"):
        early.forward(array([1] * (N_CTX + 1)))
    assert early.forward(array([1] * N_CTX)).shape == (1, SHAPE.vocab)
