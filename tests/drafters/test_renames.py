"""A word that a reply replaced is expected to be replaced wherever the source has it, whatever tokens spell it; a copy
of a block of code is not expected to go on after it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.core.draft import Tokens
from runtime.core.drafter import UNKNOWN_TOKEN, Budget
from runtime.drafters.following import Follower
from runtime.drafters.ngram import NgramDrafter
from runtime.drafters.prediction import PredictionDrafter
from runtime.drafters.renames import Spelling, renamed
from tests.drafters.test_drafters import budget

# As in real vocabularies, a name is one token after a space and several after a bracket
PARTS = " compute", "compute", "(com", "pute", "_total", " total", "total", "(total", "_price", "``", "`\n\n", "```"
PIECES = [part.encode() for part in PARTS] + [bytes([byte]) for byte in range(256)]
LONGEST_FIRST = sorted(range(len(PIECES)), key=lambda token: -len(PIECES[token]))


def encode(text: str) -> list[int]:
    """Return the tokens of a text, the longest that fits first."""
    data, found = text.encode(), list[int]()
    while data:
        found.append(next(token for token in LONGEST_FIRST if data.startswith(PIECES[token])))
        data = data[len(PIECES[found[-1]]) :]
    return found


def spelled(tokens: Sequence[int]) -> str:
    return b"".join(PIECES[token] for token in tokens).decode(errors="replace")


def ids(tokens: Sequence[int]) -> Tokens:
    return np.array(tokens, dtype=np.int32)


SPELLING = Spelling(dict(enumerate(PIECES)), encode)
# Of SentencePiece, which puts a space before what it is given
SPACED = Spelling(dict(enumerate(PIECES)), lambda text: encode(" " + text))
PROMPT = encode("Rename it.")
FILE = (
    "import carts\n\n\ndef compute_total(cart):\n    pass\n\n{compute_total(cart):8}\n\nround(compute_total(cart), 2)\n"
)


def passes(source: str, reply: str, spelling: Spelling | None = SPELLING) -> int:
    """Return the number of passes that a reply takes, with drafts of up to 31 tokens."""
    follower, tokens, at, n = Follower(ids(PROMPT), encode(source), 2, spelling), encode(reply), 0, 0
    while at < len(tokens):
        draft = follower.propose(ids(PROMPT + tokens[:at]), budget(31)).tokens
        right = (i for i, (a, b) in enumerate(zip(draft, tokens[at:], strict=False)) if a != b)
        at, n = at + next(right, len(draft)) + 1, n + 1
    return n


def test_a_name_is_expected_in_places_where_other_tokens_spell_it() -> None:
    reply = FILE.replace("compute_total", "total_price")
    assert passes(FILE, reply) == passes(FILE, reply, SPACED) < passes(FILE, reply, spelling=None)
    follower, tokens = Follower(ids(PROMPT), encode(FILE), 2, SPELLING), encode(reply)
    for place in ("{total", "(total"):
        at = len(encode(reply[: reply.index(place) + (place[0] == "{")]))
        for n in range(at + 1):
            follower.follow(ids(PROMPT + tokens[:n]))
        drafted = spelled(follower.propose(ids(PROMPT + tokens[:at]), budget(9)).tokens)
        assert drafted.lstrip("(").startswith("total_price(cart)")


def replaced(source: str, old: str, new: str) -> list[tuple[str, str]]:
    """Return the replacements that are expected after the first one of an old text by a new one."""
    begin = source.index(old)
    first, last = len(encode(source[:begin])), len(encode(source[: begin + len(old)]))
    return [(spelled(a), spelled(b)) for a, b in renamed(SPELLING, encode(source), first, last, encode(new))]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("x", "y", [("x", "y"), ("x", "y")]),
        ("x", "self.x", [("x", "self.x")] * 2),
        ("x", "", []),  # left out
        ("x", "x, y", []),  # put in: a word became two
        ("x", "+", []),
        ("x", "y" * 80, []),  # no word is as long
    ],
)
def test_only_a_word_for_a_word_is_expected_again(old: str, new: str, expected: list[tuple[str, str]]) -> None:
    assert replaced("a = x; b = x(xx, _x, x.y)", old, new) == expected


def test_a_word_is_whole_although_its_tokens_differ_in_parts() -> None:
    found = replaced(
        "(compute_total) compute_total; compute_totals; (compute_total", "(compute_total", "(compute_price"
    )
    assert found == [(" compute_total", " compute_price"), ("(compute_total", "(compute_price")]


def test_words_have_letters_of_all_languages() -> None:
    assert replaced("ä; ä.b; äb", "ä", "ö") == [("ä", "ö")]
    source = encode("ä; ä")
    assert list(renamed(SPELLING, source, 0, 2, encode("ö")[:1])) == []  # half a character


@given(st.text(alphabet="ab_.( é`\n", max_size=40), st.text(alphabet="ab_.é ", max_size=6), st.data())
def test_what_is_expected_is_what_a_replacement_in_the_text_gives(source: str, new: str, data: st.DataObject) -> None:
    tokens = encode(source)
    begin = data.draw(st.integers(0, len(tokens)))
    end = data.draw(st.integers(begin, len(tokens)))
    for old, by in renamed(SPELLING, tokens, begin, end, encode(new)):
        assert len(old) < len(tokens)
        assert spelled(old) != spelled(by)
        assert any(tokens[at : at + len(old)] == list(old) for at in range(end, len(tokens)))


def confidences(source: str, reply: str) -> dict[str, float]:
    """Return the confidence of each draft token after a reply, by the text before it."""
    found: list[float] = []
    asked = Budget(20, lambda confidence, token=UNKNOWN_TOKEN: found.append(confidence) or 2, budget(1).pick)  # type: ignore[func-returns-value,return-value,arg-type]
    tokens = Follower(ids(PROMPT), encode(source), 2, SPELLING).propose(ids(PROMPT + encode(reply)), asked).tokens
    return {spelled(tokens[:n]): confidence for n, confidence in enumerate(found)}


def test_a_copy_of_a_block_may_end_before_the_fence_that_ends_it() -> None:
    found = confidences("```py\nab\n```\n\nRename it.", "```py\n")
    assert found["ab"] > 0.8
    assert found["ab\n"] < 0.5  # as the fence may be another token where nothing follows it
    assert found["ab\n```"] > 0.8
    assert confidences("```py\nab```cd", "```py\n")["ab"] > 0.8  # a fence that ends nothing


@pytest.mark.parametrize("kind", [NgramDrafter, PredictionDrafter])
def test_drafters_know_the_spelling(kind: type[NgramDrafter | PredictionDrafter]) -> None:
    source, reply = encode(FILE), encode(FILE.replace("compute_total", "total_price"))
    drafter, at = kind(SPELLING), len(encode("import carts\n\n\ndef total_price(cart):\n    pass\n\n{"))
    context = PROMPT + source
    drafter.begin(ids(context), source)
    for n in range(at):
        drafter.propose(ids(context + reply[:n]), budget(8))
    assert spelled(drafter.propose(ids(context + reply[:at]), budget(8)).tokens).startswith("total_price(cart)")
