"""A changed copy is followed through its source, and what is replaced in one place is expected in the next."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.drafters.following import Follower, Followers
from runtime.drafters.ngram import NgramDrafter
from tests.drafters.test_drafters import budget, ids, said

PROMPT = "?>"
FILE = "def f(a, b):\n  total = a; total += b; show(total, a); total = 0; put(total)"


def copied(reply: str, source: str = FILE, k: int = 12) -> list[str]:
    """What is drafted after each character of a reply, with a step for each."""
    follower = Follower(ids(PROMPT), ids(source), 2)
    return [said(follower.propose(ids(PROMPT + reply[:n]), budget(k))) for n in range(len(reply) + 1)]


def passes(reply: str, source: str = FILE, k: int = 12) -> int:
    """Passes that a reply takes, of which each has as many draft tokens as are proposed."""
    follower, at, n = Follower(ids(PROMPT), ids(source), 2), 0, 0
    while at < len(reply):
        draft = said(follower.propose(ids(PROMPT + reply[:at]), budget(k)))
        n_right = next((i for i, (a, b) in enumerate(zip(draft, reply[at:], strict=False)) if a != b), len(draft))
        at, n = at + n_right + 1, n + 1
    return n


def test_a_name_that_is_replaced_is_drafted_from_its_second_place_on() -> None:
    reply = FILE.replace("total", "sum")
    drafted = copied(reply)
    for at in (reply.index("; sum +="), reply.index(", a);")):
        assert drafted[at] == reply[at : at + 12]
    assert passes(reply) < 12


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("total", "x"),  # by less
        ("total", "total_2"),  # by what begins alike
        (" = ", ":="),  # of several tokens
        ("; ", ""),  # left out
        ("; ", ";\n"),  # of which the first is kept
        ("(", "(self, "),  # put in
    ],
)
def test_whatever_is_replaced_the_copy_takes_fewer_passes_than_places(old: str, new: str) -> None:
    source = "; ".join(f"total = v{i} + f(total)" for i in range(20))
    reply = source.replace(old, new)
    assert passes(reply, source, k=31) < source.count(old) + len(reply) // 20


def test_within_a_replacement_the_rest_of_it_is_drafted() -> None:
    reply = FILE.replace("total", "xyzwv")
    at = reply.index("zwv += b")
    assert copied(reply)[at] == reply[at : at + 12]


def test_a_replacement_that_does_not_hold_is_given_up() -> None:
    source = " ".join(f"({i}) total;" for i in range(9))
    reply = source.replace("total", "sum", 2)
    drafted, second, last = copied(reply, source), reply.index(" (2)"), reply.index(" (7)")
    assert drafted[second] == " (2) sum; (3"
    assert drafted[last] == reply[last : last + 12]


def test_what_stands_for_it_now_is_expected() -> None:
    source = " ".join(f"({i}) total;" for i in range(9))
    reply = source.replace("total", "sum", 1).replace("total", "xyz")
    drafted, at = copied(reply, source), reply.index(" (8)")
    assert drafted[at] == reply[at:]


def test_what_is_long_is_no_replacement() -> None:
    source = "a = 1; b = 2; " * 8
    reply = source.replace("b = 2; ", "# nothing of the kind is needed here\n")
    follower = Follower(ids(PROMPT), ids(source), 2)
    for n in range(len(reply)):
        follower.follow(ids(PROMPT + reply[:n]))
    assert not any(len(each.new) > 10 for known in follower.replacements._by_first.values() for each in known)


def test_the_place_in_the_prompt_is_found_by_what_is_copied() -> None:
    drafter, prompt = NgramDrafter(), f"Rename total to sum.\n{FILE}\n"
    drafter.begin(ids(prompt), ())
    reply = FILE.replace("total", "sum")
    at = reply.index("; sum = 0")
    for n in range(at):
        drafter.propose(ids(prompt + reply[:n]), budget(8))
    assert said(drafter.propose(ids(prompt + reply[:at]), budget(12))) == "; sum = 0; p"


def test_replies_that_are_made_together_have_their_own_places() -> None:
    followers, prompts = Followers(), ["one>", "two>"]
    for prompt in prompts:
        followers.add(Follower(ids(prompt), ids(FILE), 2))
    for prompt, name in zip(prompts, ("sum", "all"), strict=True):
        reply = FILE.replace("total", name)[:30]
        follower = followers.of(ids(prompt + reply))
        assert follower is not None
        for n in range(len(reply)):
            follower.follow(ids(prompt + reply[:n]))
        assert name in said(follower.propose(ids(prompt + reply), budget(31)))


def test_a_source_of_a_megabyte_and_a_reply_that_has_nothing_to_do_with_it() -> None:
    source = np.random.default_rng(1).integers(0, 50_000, 1 << 18).astype(np.int32)
    follower, reply = Follower(ids(PROMPT), source), np.arange(50_000, 50_200, dtype=np.int32)
    assert all(not follower.propose(np.concatenate([ids(PROMPT), reply[:n]]), budget(8)).tokens for n in range(200))


def test_what_is_left_out_again_and_again_needs_no_stack() -> None:
    source = "".join(f"line {i}\n" for i in range(9)) + "x" * 5000 + "end"
    follower = Follower(ids(PROMPT), ids(source), 2)
    follower.replacements.learn((ord("x"),), ())
    reply = source.replace("x", "")
    for n in range(len(reply) + 1):
        follower.follow(ids(PROMPT + reply[:n]))
    assert follower.n_in_step == len(reply) + 2


def test_few_replacements_are_kept_of_tokens_that_begin_alike() -> None:
    follower = Follower(ids(PROMPT), ids(FILE), 2)
    for i in range(100):
        follower.replacements.learn((1, i), (i,))
    assert len(follower.replacements._by_first[1]) == 8


def test_after_a_leap_the_place_is_found_again() -> None:
    source = "".join(map(chr, np.random.default_rng(1).integers(97, 123, 600)))
    follower = Follower(ids(PROMPT), ids(source), 2)
    assert said(follower.propose(ids(PROMPT + source[:500]), budget(9))) == source[500:509]


def test_a_copy_that_goes_backwards_is_found_again_and_again() -> None:
    lines = [f"line {i} says {i * i % 97}\n" for i in range(40)]
    reply = "".join(reversed(lines))
    assert passes(reply, "".join(lines), k=31) < len(reply) // 3


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(0, 3), max_size=30),
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=60), min_size=1, max_size=6),
    st.integers(1, 9),
)
def test_whatever_becomes_of_the_context_it_drafts_known_tokens(
    source: list[int], contexts: list[list[int]], k: int
) -> None:
    follower = Follower(np.zeros(3, dtype=np.int32), source, 2)
    known = set(source)  # also what was learned from the contexts before
    for context in contexts:
        known |= {*context}
        for n in range(1, len(context) + 1):
            draft = follower.propose(np.array(context[:n], dtype=np.int32), budget(k)).tokens
            assert len(draft) <= k
            assert set(draft) <= known
