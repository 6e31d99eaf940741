"""Each drafter on its own, without weights."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.draft import Budget, Draft, Pick, Tokens
from runtime.drafters.model import ModelDrafter
from runtime.drafters.ngram import NgramDrafter
from tests.toy import ToyBackend


def budget(k: int, go_on: object = None) -> Budget:
    return Budget(k, go_on or (lambda confidence: True), lambda row, path, n: Pick(int(row.argmax()), 1.0, None))  # type: ignore[arg-type]


def ids(text: str) -> Tokens:
    return np.array([ord(c) for c in text], dtype=np.int32)


def said(draft: Draft) -> str:
    return "".join(map(chr, draft.tokens))


@pytest.mark.parametrize(
    ("context", "k", "expected"),
    [
        ("the cat sat. the c", 3, "at "),
        ("abcXabcYabc", 1, "Y"),  # the newest of two matches
        ("xbcQ wabcR wabc", 1, "R"),  # the longest match before the newest short one
        ("no repeats", 4, ""),
        ("ababab", 4, "abab"),  # a match that reaches the end goes on repeating
        ("aaaa", 3, "aaa"),
        ("", 3, ""),
        ("a", 3, ""),
    ],
)
def test_ngram_continues_the_newest_longest_match(context: str, k: int, expected: str) -> None:
    assert said(NgramDrafter().propose(ids(context), budget(k))) == expected


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(st.integers(0, 3), max_size=30), min_size=1, max_size=6))
def test_an_edited_context_is_looked_up_as_a_fresh_one(contexts: list[list[int]]) -> None:
    old = NgramDrafter()
    for context in contexts:
        tokens = np.array(context, dtype=np.int32)
        assert old.propose(tokens, budget(4)) == NgramDrafter().propose(tokens, budget(4))


def test_ngram_asks_about_each_token_and_is_surer_of_longer_matches() -> None:
    asked: list[float] = []
    for context in ("zbcQ bc", "abcQabc", "wabcQwabc"):
        NgramDrafter().propose(ids(context), budget(3, lambda c: asked.append(c) or len(asked) % 3 != 0))
    assert asked[0] == asked[1] < asked[3] < asked[6]


def test_the_draft_model_guesses_until_the_budget_says_stop() -> None:
    model, context = ToyBackend(), np.array([1, 2], dtype=np.int32)
    drafter, path = ModelDrafter(model, 6), [1, 2]
    for _ in range(3):
        path.append(int(model.row(path).argmax()))
    assert list(drafter.propose(context, budget(3)).tokens) == path[2:]
    answers = iter([True, True, False])
    assert list(drafter.propose(context, budget(8, lambda c: next(answers))).tokens) == path[2:4]
    assert len(drafter.propose(context, budget(8, lambda c: False))) == 0


def test_the_draft_model_stays_inside_its_context() -> None:
    drafter = ModelDrafter(ToyBackend(n_ctx=5), 6)
    assert len(drafter.propose(np.array([1, 2, 3], dtype=np.int32), budget(8))) == 2
    assert len(drafter.propose(np.arange(6, dtype=np.int32), budget(8))) == 0


def test_the_draft_model_never_says_what_the_target_cannot() -> None:
    drafter = ModelDrafter(ToyBackend(n_vocab=6), n_vocab=2)
    for a in range(2):
        for b in range(2):
            assert max(drafter.propose(np.array([a, b], dtype=np.int32), budget(4)).tokens) < 2
