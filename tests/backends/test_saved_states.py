"""Saved conversations: which one is found for a prompt, and how many are kept. Copies here have no cells."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from runtime.backends.stored.saved_states import MAX_SAVED, SavedState, SavedStates

Ids = list[int]


def state(ids: Ids, grain: int = 1) -> SavedState:
    """A conversation of these tokens, all of them exact and part of a request."""
    n = len(ids)
    return SavedState(np.array(ids, dtype=np.int32), np.zeros(1, dtype=np.uint8), n, None, grain, n)


texts = st.lists(st.integers(0, 1), max_size=8)


@given(
    st.lists(texts, max_size=9, unique_by=tuple),
    texts.filter(bool),
    st.sampled_from([1, 3]),
    st.booleans(),
    st.integers(0, 5),
)
def test_the_state_that_shares_most_is_found(
    known: list[Ids], asked: Ids, grain: int, exact: bool, more_than: int
) -> None:
    saved, context = SavedStates(None), np.array(asked, dtype=np.int32)
    saved.most = len(known)
    for ids in known:
        saved.add(state(ids, grain))
    shared = [each.n_shared(context, exact) for each in saved]
    assert saved.n_shared(context, exact) == max(shared, default=0)
    best = max(zip(shared, saved, strict=True), key=lambda each: each[0], default=(0, None))
    assert saved.pop(context, more_than, exact) is (best[1] if best[0] > more_than else None)
    assert len(saved) == len(known) - (best[0] > more_than)


def test_what_a_newer_one_contains_is_not_kept_beside_it() -> None:
    saved = SavedStates(None)
    saved.most = 9
    begun = replace(state([1, 2]), n_asked=1, n_exact=1)
    longer = replace(state([1, 2, 3]), n_asked=1, n_exact=1)
    for each in (begun, longer, state([5]), longer, state([5])):
        saved.add(each)
    assert [each.tokens.tolist() for each in saved] == [[1, 2, 3], [5]]
    for each in (begun, state([1]), replace(longer, checkpoints=())):
        saved.add(each)
    assert len(saved) == 5


def test_more_are_kept_where_memory_has_room_but_not_without_end() -> None:
    saved = SavedStates(None)
    saved.room = lambda: 5
    saved.limit(2)
    for i in range(20):
        saved.add(state([i]))
    assert [each.tokens.tolist() for each in saved] == [[i] for i in range(13, 20)]
    saved.room = lambda: 1 << 60
    for i in range(2 * MAX_SAVED):
        saved.add(state([i]))
    assert [each.tokens.tolist() for each in saved] == [[i] for i in range(MAX_SAVED, 2 * MAX_SAVED)]
