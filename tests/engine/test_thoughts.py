"""A thought has no more tokens than it may have, whatever draws or drafts them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.reply_text import BEGIN, END
from runtime.engine import Grammar, Ids, Options, Sampling, ThoughtBudget
from runtime.engine.binding import closing, shown_pieces
from runtime.engine.loaded import LoadedEngine
from runtime.models.registry import load_registry
from runtime.sampling.masks import together
from runtime.sampling.thoughts import ThoughtMask, is_whole
from tests.support.marks import write_marked
from tests.support.vocabulary import opened_vocabulary

WORDS = [b"<think>", b"</", b"think>", b"a", "é".encode()[:1], "é".encode()[1:], b"\n", b"b"]
CLOSING = (1, 2)


def mask(n: int, is_open: bool = False) -> ThoughtMask:
    return ThoughtMask(ThoughtBudget(n, BEGIN, END, is_open), CLOSING, WORDS.__getitem__, len(WORDS))


def allowed(n: int, said: list[int], is_open: bool = False) -> list[int]:
    """What may follow; the same whether it was said or is tentative."""
    results = []
    for cut in range(len(said) + 1):
        one = mask(n, is_open)
        for end in range(cut + 1):
            one.begin(np.array(said[:end], dtype=np.int32))
        results.append(np.flatnonzero(one.allowed(tuple(said[cut:]))).tolist())
    assert all(result == results[0] for result in results)
    return results[0]


ANYTHING = list(range(len(WORDS)))


@pytest.mark.parametrize(
    ("n", "said", "is_open", "expected"),
    [
        (2, [0, 3], False, ANYTHING),
        (2, [0, 3, 3], False, [1]),
        (2, [6, 0, 3, 3], False, [1]),  # a line break before the mark
        (2, [0, 3, 3, 1], False, [2]),
        (2, [0, 3, 3, 1, 2], False, ANYTHING),
        (2, [0, 3, 3, 1, 2, 0, 3, 3], False, ANYTHING),  # what follows is the answer
        (0, [], True, [1]),
        (1, [3], True, [1]),
        (1, [4], True, ANYTHING),  # the character has another byte
        (1, [4, 5], True, [1]),
        (3, [1, 2, 3, 3, 3], True, ANYTHING),  # it ended by itself
        (0, [3, 0, 3], False, ANYTHING),  # no thought: the reply began with something else
        (0, [], False, ANYTHING),
    ],
)
def test_the_end_of_a_thought_has_to_come_when_its_tokens_are_spent(
    n: int, said: list[int], is_open: bool, expected: list[int]
) -> None:
    assert allowed(n, said, is_open) == expected


def test_what_is_left_of_the_mark_can_be_drafted() -> None:
    one = mask(1, is_open=True)
    assert one.forced() == ()
    one.begin(np.array([3], dtype=np.int32))
    assert one.forced() == CLOSING
    one.begin(np.array([3, 1], dtype=np.int32))
    assert one.forced() == CLOSING[1:]


def test_several_masks_allow_what_all_allow() -> None:
    assert together([]) is None
    both = together([mask(0, is_open=True), mask(9)])
    assert both is not None
    both.begin(np.array([], dtype=np.int32))
    assert np.flatnonzero(both.allowed(())).tolist() == [1]
    assert both.forced() == CLOSING


def test_where_masks_exclude_each_other_the_last_decides() -> None:
    class Last(ThoughtMask):
        """Lets only one token come."""

        def allowed(self, path: Any) -> Any:
            return np.arange(len(WORDS)) == 7

    both = together([mask(0, is_open=True), Last(ThoughtBudget(9, BEGIN, END), (), WORDS.__getitem__, len(WORDS))])
    assert both is not None
    both.begin(np.array([7], dtype=np.int32))
    assert np.flatnonzero(both.allowed(())).tolist() == [7]
    assert allowed(0, [7, 7], is_open=True) == [1]  # the mark comes as soon as it may


@pytest.mark.parametrize(
    ("marks", "grammar", "expected"),
    [
        ("own", None, "whole"),
        ("own", Grammar("lark", "start: /.*/"), "whole"),
        ("control", None, "whole"),
        ("control", Grammar("lark", "start: /.*/"), "spelled"),
        ("control", Grammar("lark", f'start: /.*/ "{END}"'), "whole"),
        ("control", Grammar("lark", "start: (/.*/ other_marks)*"), "whole"),
        ("control", Grammar("json_object"), "spelled"),
    ],
)
def test_a_mark_that_is_one_token_ends_a_thought_where_the_grammar_takes_it(
    tmp_path: Path, marks: str, grammar: Grammar | None, expected: str
) -> None:
    names: dict[str, Sequence[str]] = {marks: [BEGIN, END]}
    with opened_vocabulary(write_marked(tmp_path / "model.gguf", **names)) as vocab:
        found = closing(END, vocab, grammar)
        assert len(found) == (1 if expected == "whole" else len(END))
        assert b"".join(map(shown_pieces(vocab, Grammar("json_object")).__getitem__, found)).decode() == END


@pytest.mark.parametrize(("text", "whole"), [("é".encode(), True), (b"a\xc3", False), (b"\xa9a", True), (b"", True)])
def test_a_character_that_lacks_bytes_is_not_whole(text: bytes, whole: bool) -> None:
    assert is_whole(text) is whole


@pytest.fixture(scope="module")
def engines() -> Iterator[list[LoadedEngine]]:
    found = [LoadedEngine(load_registry()["demo"], Options(threads=1, drafters=drafters)) for drafters in ((), None)]
    yield found
    for engine in found:
        engine.close()


def said(engine: LoadedEngine, **more: Any) -> str:
    ids = Ids(tuple(engine.tokenize("import os\n\ndef read(path):\n", bos=True)))
    return "".join(chunk.text for chunk in engine.reply(ids, max_tokens=40, **more))


@pytest.mark.parametrize("sampling", [Sampling(temperature=0), Sampling(seed=3), Sampling()])
def test_the_mark_comes_at_its_place_with_and_without_drafts(engines: list[LoadedEngine], sampling: Sampling) -> None:
    budget = ThoughtBudget(12, BEGIN, END, is_open=True)
    never_ends = tuple((token, -math.inf) for token in engines[0].end_tokens)  # chance may have it end before the mark
    sampling = replace(sampling, logit_bias=never_ends)
    texts = [said(engine, sampling=sampling, thoughts=budget) for engine in engines]
    for text in texts:
        _, mark, answer = text.partition(END)
        assert mark
        assert answer
    if sampling.temperature == 0 or sampling.seed is not None:
        assert texts[0] == texts[1]
        thought = texts[0].partition(END)[0]
        assert abs(len(engines[0].tokenize(thought)) - 12) <= 2  # other tokens may spell the same text
        assert said(engines[0], sampling=sampling).startswith(thought)
