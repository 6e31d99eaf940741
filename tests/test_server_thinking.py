"""What a model thinks goes to its own field, however the text is cut."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.server.openai.chat import ChatForm
from app.server.openai.thinking import Thinking, Thoughts, opens
from runtime.engine import Chunk
from runtime.engine.stats import Stats
from runtime.speculative.control.explain import Pass

CASES = [
    ("<think>\nI wonder</think>\n\nYes.", False, ("\nI wonder", "Yes.")),
    ("\n<think>a < b</thin </think>c</think>", False, ("a < b</thin ", "c</think>")),
    ("I wonder</think>Yes", True, ("I wonder", "Yes")),
    ("I wond", True, ("I wond", "")),
    ("Plain <think>no</think>", False, ("", "Plain <think>no</think>")),
    ("<thi", False, ("", "<thi")),
    ("<think>x</thi", False, ("x</thi", "")),
    ("", False, ("", "")),
]


@pytest.mark.parametrize(("text", "is_open", "expected"), CASES)
@given(cuts=st.lists(st.integers(0, 40)))
def test_thought_and_answer_are_told_apart(
    text: str, is_open: bool, expected: tuple[str, str], cuts: list[int]
) -> None:
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    thinking = Thinking(is_open)
    deltas = [delta for a, b in pairwise(places) for delta in thinking.feed(text[a:b])] + list(thinking.finish())
    thought, answer = ("".join(delta.get(key, "") for delta in deltas) for key in ("reasoning_content", "content"))
    assert (thought, answer) == expected


def test_a_prompt_may_begin_the_thought() -> None:
    assert opens("<|assistant|><think>\n")
    assert not opens("<think>no</think>\n<|assistant|>")


@pytest.mark.parametrize(
    ("pieces", "is_open", "n"),
    [
        (["<think>", "a b", "</", "think>", "\n", "Yes"], False, 4),
        (["<thi", "nk>", "a</think>Yes", "!"], False, 3),
        (["a", "b", "</think>", "Yes"], True, 3),
        (["a", "b"], True, 2),
        (["<thi", "s>"], False, 0),
        (["\n", "Yes", "<think>", "a", "</think>"], False, 0),
    ],
)
@pytest.mark.parametrize("width", [1, 2, 9])
def test_thought_tokens_are_counted_however_many_come_at_once(
    pieces: list[str], is_open: bool, n: int, width: int
) -> None:
    thoughts = Thoughts(is_open)
    for chunk in chunks(pieces, width):
        list(thoughts.read(chunk))
    assert thoughts.n_tokens == n


def chunks(pieces: list[str], width: int) -> list[Chunk]:
    """A reply of so many tokens at once."""
    parts = [tuple(pieces[at : at + width]) for at in range(0, len(pieces), width)]
    return [Chunk("".join(part), tuple(range(len(part))), pieces=part) for part in parts]


@pytest.mark.parametrize("stream", [False, True])
def test_usage_says_how_many_tokens_were_thought(stream: bool) -> None:
    form = ChatForm(
        SimpleNamespace(pair=SimpleNamespace(name="m")), logprobs=False, include_usage=True, thinking=Thoughts(True)
    )  # type: ignore[arg-type]
    stats = Stats(steps=[Pass(0.0, "none", 0, 0, n_tokens=1)] * 4)
    said = [
        *chunks(["a", "b", "</think>", "Yes"], 3),
        Chunk("", finish_reason="stop", stats=stats),
    ]
    whole: Any = (
        form.whole(said) if not stream else [list(form.piece(chunk)) for chunk in said] and list(form.end(said[-1]))[-1]
    )
    assert whole["usage"]["completion_tokens_details"]["reasoning_tokens"] == 3
