"""Each drafter on its own, without weights."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.instruments.toy import ToyBackend
from runtime.core.draft import NO_DRAFT, Draft, Logits, Tokens
from runtime.core.drafter import UNKNOWN_TOKEN, Budget, Pick
from runtime.drafters.lookup import Lookup, tail_of
from runtime.drafters.model import ModelDrafter
from runtime.drafters.ngram import NgramDrafter


def budget(k: int, go_on: Callable[[float], bool] = lambda confidence: True) -> Budget:
    return Budget(
        k,
        lambda confidence, token=UNKNOWN_TOKEN: go_on(confidence),
        lambda row, path: Pick(int(row.argmax()), 1.0, None),
    )


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
        ("1abX2abX3abY4ab", 1, "X"),  # two of three matches as long as each other
        ("no repeats", 4, ""),
        ("ababab", 4, "abab"),  # a match that reaches the end goes on repeating
        ("aaaa", 3, "aaa"),
        ("", 3, ""),
        ("a", 3, ""),
    ],
)
def test_ngram_continues_the_longest_matches_by_their_majority_then_the_newest(
    context: str, k: int, expected: str
) -> None:
    assert said(NgramDrafter().propose(ids(context), budget(k))) == expected


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(st.integers(0, 3), max_size=150), min_size=1, max_size=6))
def test_an_edited_context_is_looked_up_as_a_fresh_one(contexts: list[list[int]]) -> None:
    old = NgramDrafter()
    for context in contexts:
        tokens = np.array(context, dtype=np.int32)
        assert old.propose(tokens, budget(4)) == NgramDrafter().propose(tokens, budget(4))


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.integers(0, 3), min_size=80, max_size=300),
    st.integers(1, 90),
    st.lists(st.integers(0, 3), min_size=2, max_size=20),
)
def test_a_text_taken_in_at_once_is_found_as_one_taken_in_by_pieces(text: list[int], n: int, tail: list[int]) -> None:
    tokens, whole, pieces = np.array(text, dtype=np.int32), Lookup(), Lookup()
    whole.add(tokens)
    for first in range(0, len(tokens), n):
        pieces.add(tokens[first : first + n])
    end = tail_of(np.array(tail, dtype=np.int32))
    assert whole.find(end) == pieces.find(end)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=4, max_size=40))
def test_a_match_is_as_long_as_it_is_said_to_be(text: list[int]) -> None:
    lookup = Lookup()
    lookup.add(np.array(text, dtype=np.int32))
    for at, length in lookup.find(lookup.tokens.tolist()):
        assert text[at - length : at] == text[-length:]
        assert at < len(text)


def confidences(context: str, k: int = 1) -> list[float]:
    """What n-gram lookup says about its first `k` tokens."""
    asked: list[float] = []
    NgramDrafter().propose(ids(context), budget(k, lambda c: asked.append(c) or True))
    return asked


def test_ngram_is_surer_of_longer_matches_of_more_of_them_and_of_those_that_agree() -> None:
    [short], [longer] = confidences("abQ_ab"), confidences("xabQ_xab")
    [two], [split] = confidences("abQ_abQ-ab"), confidences("abQ_abR-ab")
    assert 0 < split < short < longer < 1
    assert short < two < 1
    assert confidences("abcdefgh__abcd", 4) == sorted(confidences("abcdefgh__abcd", 4))


def test_ngram_stops_where_the_budget_says_so() -> None:
    answers = iter([True, True, False])
    assert said(NgramDrafter().propose(ids("the cat sat. the c"), budget(8, lambda c: next(answers)))) == "at"


def test_a_context_that_only_grows_is_known_again_and_one_that_was_edited_far_back_is_taken_in_anew() -> None:
    drafter, text = NgramDrafter(), np.arange(3000, dtype=np.int32)
    drafter.propose(text, budget(4))
    edited = np.concatenate([text, text[:6]])
    edited[4:8] = 7777
    drafter.begin(edited, ())
    assert drafter.propose(edited, budget(2)).tokens == NgramDrafter().propose(edited, budget(2)).tokens
    grown = np.concatenate([edited, edited[100:104]])
    assert drafter.propose(grown, budget(2)).tokens == (104, 105)


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


class Memo(ToyBackend):
    """Notes what it was asked, and how much of that it had to decode."""

    def __init__(self, n_ctx: int) -> None:
        super().__init__(n_ctx=n_ctx)
        self.held, self.n_decoded = np.zeros(0, dtype=np.int32), 0

    def n_cached(self, context: Tokens, exact: bool = True) -> int:
        n = min(len(self.held), len(context) - 1)
        differs = np.flatnonzero(self.held[:n] != context[:n])
        return int(differs[0]) if len(differs) else n

    def forward(self, context: Tokens, draft: Draft = NO_DRAFT, exact: bool = True) -> Logits:
        self.n_decoded += len(context) - self.n_cached(context)
        self.held = context.copy()
        return self.table[0, context[-1:] % self.n_vocab]


def test_of_a_long_context_the_draft_model_sees_the_first_tokens_and_the_latest() -> None:
    memo = Memo(104)
    drafter = ModelDrafter(memo, 6, room=4)
    for n in range(1, 1000):
        context = np.arange(n, dtype=np.int32)
        assert len(drafter.propose(context, budget(4))) == 4
        seen = memo.held[:-3]  # what was drafted comes after it
        n_latest = min(n, len(seen)) - 4
        assert seen[:4].tolist() == context[:4].tolist()
        assert (n <= 100 and len(seen) == n) or 50 < len(seen) <= 100
        assert n < 5 or seen[4:].tolist() == context[n - n_latest :].tolist()


def test_what_the_draft_model_sees_moves_so_seldom_that_little_is_read_twice() -> None:
    memo = Memo(104)
    drafter, n = ModelDrafter(memo, 6, room=4), 2000
    for end in range(100, n):
        drafter.propose(np.arange(end, dtype=np.int32) % 6, budget(1))
    assert memo.n_decoded < 2.1 * n


def test_a_long_prompt_is_read_in_pieces_no_further_back_than_is_looked_at() -> None:
    memo, context = Memo(104), np.arange(777, dtype=np.int32)
    drafter = ModelDrafter(memo, 6, room=4)
    n_uncached = drafter.n_uncached(context)
    assert n_uncached <= 100
    for end in [*range(777 - n_uncached + 10, 777, 10), 777]:
        drafter.prefill(context[:end], 777)
    drafter.propose(context, budget(1))
    assert memo.n_decoded <= n_uncached + 1
    assert drafter.n_uncached(context) == 1


def test_the_draft_model_never_says_what_the_target_cannot() -> None:
    drafter = ModelDrafter(ToyBackend(n_vocab=6), n_vocab=2)
    for a in range(2):
        for b in range(2):
            assert max(drafter.propose(np.array([a, b], dtype=np.int32), budget(4)).tokens) < 2
