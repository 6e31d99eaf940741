"""Token trees: made of paths, decoded at once, and the cache behind them as plain decode would have left it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.backends import tree
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.core.draft import NO_DRAFT, Draft
from runtime.drafters.lookahead import tree_of

N_CTX, MOST = 200, 8


@pytest.fixture(scope="module")
def backends(tiny: Path) -> Iterator[tuple[LlamaBackend, LlamaBackend]]:
    """One that decodes trees, with little room for losers; one that decodes token by token."""
    model = LlamaModel(tiny)
    pair = LlamaBackend(model, N_CTX, n_rows=MOST + 1, can_branch=True), LlamaBackend(model, N_CTX, n_rows=2)
    pair[0].n_cells = 80  # so that room runs out
    for backend in pair:
        backend.set_threads(1, 1)
    yield pair
    for backend in pair:
        backend.close()
    model.close()


def random_tree(rng: np.random.Generator) -> Draft:
    """Up to MOST nodes under random parents; siblings differ."""
    tokens, parents = list[int](), list[int]()
    for _ in range(int(rng.integers(1, MOST + 1))):
        parent = int(rng.integers(-1, len(tokens)))
        token = int(rng.integers(0, 500))
        if all((p, t) != (parent, token) for p, t in zip(parents, tokens, strict=True)):
            parents.append(parent)
            tokens.append(token)
    return Draft(tuple(tokens), tuple(parents))


def path_of(draft: Draft, node: int) -> list[int]:
    return [] if node < 0 else [*path_of(draft, draft.parent(node)), draft.tokens[node]]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32))
def test_every_node_has_the_logits_of_its_path_and_the_cache_stays_exact(
    backends: tuple[LlamaBackend, LlamaBackend], seed: int
) -> None:
    """Trees of which any path, or none, or an edit follows; chains and single tokens between them; so many losers that
    room runs out.
    """
    trees, plain = backends
    rng = np.random.default_rng(seed)
    context = rng.integers(0, 500, 5).tolist()
    for _ in range(12):
        if rng.random() < 0.15:
            context = [*context[: int(rng.integers(1, len(context)))], *rng.integers(0, 500, 3).tolist()]
        draft = (random_tree(rng), Draft(tuple(rng.integers(0, 500, 3).tolist())), NO_DRAFT)[
            int(rng.choice(3, p=[0.7, 0.2, 0.1]))
        ]
        got = trees.forward(np.array(context, dtype=np.int32), draft).copy()
        for node in range(-1, len(draft)):
            path = np.array([*context, *path_of(draft, node)], dtype=np.int32)
            assert np.array_equal(plain.forward(path)[0], got[node + 1])
        context += [*path_of(draft, int(rng.integers(-1, len(draft)))), int(rng.integers(0, 500))]


def test_a_branch_stands_behind_the_context_as_its_trunk_does(backends: tuple[LlamaBackend, LlamaBackend]) -> None:
    trees, plain = backends
    context, draft = np.arange(30, dtype=np.int32), Draft((7, 8, 9, 5), (-1, -1, 1, 0))
    got = trees.forward(context, draft).copy()
    for node in range(-1, len(draft)):
        path = np.array([*context, *path_of(draft, node)], dtype=np.int32)
        assert np.array_equal(plain.forward(path)[0], got[node + 1])


def test_what_a_tree_decoded_is_not_decoded_again(backends: tuple[LlamaBackend, LlamaBackend]) -> None:
    trees, context = backends[0], np.arange(40, dtype=np.int32)
    trees.forward(context, Draft((7, 8, 9, 5), (-1, -1, 1, 0)))
    before = trees.n_decoded
    after = np.concatenate([context, np.array([8, 9, 3], dtype=np.int32)])
    assert trees.n_cached(after) == 42
    trees.forward(after)
    assert trees.n_decoded == before + 1


def test_losers_in_front_of_winners_that_stay_are_not_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their cells would be filled next, and the main sequence be out of order."""
    freed: list[tuple[object, ...]] = []
    monkeypatch.setattr(tree.lib, "llama_memory_seq_rm", lambda *args: freed.append(args))
    cache = tree.TreeCache(None)
    cache.garbage = [(10, 11), (10, 12), (14, 14), (14, 15)]
    cache.rewind(12)
    assert (freed, cache.garbage) == ([(None, tree.GARBAGE, 13, -1)], [(10, 11), (10, 12)])
    cache.rewind(10)
    assert (freed[1], cache.garbage) == ((None, tree.GARBAGE, 10, -1), [])


def test_shared_beginnings_are_one_path() -> None:
    assert tree_of([(1, 2, 3), (), (1, 2, 4), (5,)]) == Draft((1, 2, 3, 4, 5), (-1, 0, 1, 1, -1))
