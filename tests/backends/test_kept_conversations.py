"""A backend that keeps several conversations gives each the logits that it has alone, and reads none again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.backends.heads.early_exit import EarlyExitBackend
from runtime.backends.held import TILE
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.backends.shared import SharedBackend
from runtime.core.draft import Draft

N_CTX = 256


def tokens(seed: int, n: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 512, n).astype(np.int32)


@pytest.fixture(scope="module")
def model(tiny: Path) -> Iterator[LlamaModel]:
    opened = LlamaModel(tiny)
    yield opened
    opened.close()


@pytest.fixture(scope="module", params=["chain", "tree", "early"])
def backends(model: LlamaModel, request: pytest.FixtureRequest) -> Iterator[tuple[LlamaBackend, LlamaBackend]]:
    """One that keeps three conversations, one that starts afresh each time."""
    kinds = {
        "chain": lambda: LlamaBackend(model, N_CTX, n_rows=9, n_batch=64),
        "tree": lambda: LlamaBackend(model, N_CTX, n_rows=9, n_batch=64, can_branch=True),
        "early": lambda: EarlyExitBackend(model, N_CTX, n_rows=9, n_batch=64),
    }
    pair = kinds[request.param](), LlamaBackend(model, N_CTX, n_rows=9, n_batch=256)
    for backend in pair:
        backend.set_threads(1, 1)
    if isinstance(pair[0], EarlyExitBackend):
        pair[0].reuses = True
    pair[0].set_slots(3)
    yield pair
    for backend in pair:
        backend.close()


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 12), st.integers(0, 6)), min_size=2, max_size=10))
def test_conversations_in_turns_have_the_logits_that_each_has_alone(
    backends: tuple[LlamaBackend, LlamaBackend], asked: list[tuple[int, int, int]]
) -> None:
    """Four that grow in turns where three are kept, with drafts of which a part comes true."""
    memo, fresh = backends
    length = dict.fromkeys(range(4), 90)
    for seed, n_new, k in asked:
        whole = tokens(seed, N_CTX)
        n = length[seed] = min(length[seed] + n_new, N_CTX - 9)
        guessed = [*whole[n : n + k // 2].tolist(), *tokens(9, k - k // 2).tolist()]
        branching = memo.can_branch and k > 1 and guessed[-1] not in guessed[:-1]
        parents = (*range(-1, k - 2), -1) if branching else None
        if isinstance(memo, EarlyExitBackend) and k:
            for i in range(k):
                memo.early.forward(np.array([*whole[:n], *guessed[:i]], dtype=np.int32))
        got = memo.forward(whole[:n], Draft(tuple(guessed), parents)).copy()
        fresh.forward(tokens(77, 1))
        assert np.array_equal(fresh.forward(whole[:n])[0], got[0])
        for i in range(k - 1 if branching else k):
            assert np.array_equal(
                fresh.forward(np.array([*whole[:n], *guessed[: i + 1]], dtype=np.int32))[0], got[i + 1]
            )


def test_a_kept_conversation_is_not_read_again(model: LlamaModel) -> None:
    backend = LlamaBackend(model, N_CTX, n_rows=9)
    backend.set_slots(2)
    first, second, third = (tokens(seed, 200) for seed in (1, 2, 3))
    for context in (first, second, first, second):
        backend.forward(context)
    assert backend.n_decoded == 400 + 2  # of what was read before, the last token
    backend.forward(third)
    # The one that was not used for longest has gone
    assert (backend.n_cached(second), backend.n_cached(first)) == (199, 0)
    branch = np.concatenate([second[:100], third[:50]])
    backend.forward(branch)
    assert (backend.n_cached(second), backend.n_cached(branch)) == (199, 149)  # a branch leaves what it grew from
    backend.set_slots(1)
    assert (backend.n_cached(second), backend.n_cached(branch)) == (100, 149)
    backend.close()


@pytest.mark.parametrize("kind", [LlamaBackend, SharedBackend])
def test_only_replies_with_a_seed_need_cells_that_round_as_plain_decode_does(
    model: LlamaModel, kind: type[LlamaBackend]
) -> None:
    backend, text = kind(model, N_CTX, n_rows=9, n_batch=64), tokens(1, N_CTX)
    backend.set_slots(1)
    backend.read_in_tiles()
    backend.forward(text[:90], exact=False)
    assert [backend.n_cached(text[:100], exact) for exact in (True, False)] == [90, 90]  # it was read in tiles
    backend.forward(text[:91], Draft(tuple(text[91:94].tolist())), exact=False)
    backend.forward(text[:95], exact=False)
    assert [backend.n_cached(text[:100], exact) for exact in (True, False)] == [2 * TILE, 95]
    typed = np.concatenate([text[: 2 * TILE + 9], tokens(2, 20)])
    assert [backend.n_cached(typed, exact) for exact in (True, False)] == [2 * TILE, 2 * TILE + 9]
    backend.forward(typed, exact=False)  # read from between two tiles on
    backend.forward(typed[:-1], exact=False)
    assert [backend.n_cached(typed, exact) for exact in (True, False)] == [2 * TILE, len(typed) - 1]
    backend.forward(typed)
    assert [backend.n_cached(typed, exact) for exact in (True, False)] == [len(typed) - 1] * 2
    backend.close()


def test_a_copy_knows_which_of_its_cells_round_as_plain_decode_does(model: LlamaModel) -> None:
    backend, text = LlamaBackend(model, N_CTX, n_rows=9, n_batch=64), tokens(1, N_CTX)
    backend.set_slots(2)
    backend.read_in_tiles()
    backend.forward(text[:70], exact=False)
    backend.forward(text[:71], Draft((1, 2)), exact=False)
    backend.forward(text[:75], exact=False)
    backend.forward(tokens(2, 80))
    assert [backend.n_cached(text[:90], exact) for exact in (True, False)] == [2 * TILE, 75]
    backend.forward(text[:90])
    assert backend.n_cached(text[:100]) == 90
    backend.close()


@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("kind", [LlamaBackend, SharedBackend])
def test_what_only_begins_alike_is_read_in_tiles(model: LlamaModel, kind: type[LlamaBackend], slots: int) -> None:
    """A conversation that goes on keeps all that is held of it; another one what fills tiles."""
    backend, whole = kind(model, N_CTX, n_rows=9, n_batch=64), tokens(1, N_CTX)
    backend.set_slots(slots)
    backend.read_in_tiles()
    backend.forward(whole[:90], Draft((1, 2, 3)))
    assert backend.n_cached(whole[:100]) == 90
    other = np.concatenate([whole[: 2 * TILE + 9], tokens(2, 20)])
    assert backend.n_cached(other) == 2 * TILE
    alone = LlamaBackend(model, N_CTX, n_rows=9, n_batch=256)
    assert np.array_equal(backend.forward(other), alone.forward(other))
    assert backend.n_cached(whole[:100]) == (90 if slots > 1 else 2 * TILE)
    for each in (backend, alone):
        each.close()
