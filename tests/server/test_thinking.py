"""What a model thinks goes to its own field, however the text is cut."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.reply_text import ReasoningParser, opens_reasoning, split_reasoning
from app.server.openai.chat import ChatRequest
from app.server.openai.chat_response import ChatFormatter
from app.server.openai.reply_reader import ReasoningReader, ReplyReader
from runtime.engine import Chunk
from runtime.engine.stats import Stats
from runtime.speculative.control.explain import Pass
from tests.support.serving import named

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
    parser = ReasoningParser(is_open)
    deltas = [delta for a, b in pairwise(places) for delta in parser.feed(text[a:b])] + list(parser.finish())
    thought, answer = ("".join(delta.get(key, "") for delta in deltas) for key in ("reasoning_content", "content"))
    assert (thought, answer) == expected


def test_a_prompt_may_begin_the_thought() -> None:
    assert opens_reasoning("<|assistant|><think>\n")
    assert not opens_reasoning("<think>no</think>\n<|assistant|>")


def test_a_whole_reply_is_split_as_one_that_comes_in_pieces() -> None:
    assert split_reasoning("<think>\na\n</think>\n\nb") == ("a", "b")
    assert split_reasoning("<think>still") == ("still", "")
    assert split_reasoning(" no <think>x</think>") == ("", " no <think>x</think>")
    assert split_reasoning("<thi") == ("", "<thi")


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
    reader = ReasoningReader(is_open)
    for chunk in chunks(pieces, width):
        list(reader.read(chunk))
    assert reader.n_tokens == n


def chunks(pieces: list[str], width: int) -> list[Chunk]:
    """A reply of so many tokens at once."""
    parts = [tuple(pieces[at : at + width]) for at in range(0, len(pieces), width)]
    return [Chunk("".join(part), tuple(range(len(part))), pieces=part) for part in parts]


@pytest.mark.parametrize("stream", [False, True])
def test_usage_says_how_many_tokens_were_thought(stream: bool) -> None:
    readers = [ReplyReader(reasoning=ReasoningReader(True))]
    asked = ChatRequest.model_validate(
        {"messages": [{"role": "user", "content": "?"}], "stream_options": {"include_usage": True}}
    )
    formatter = ChatFormatter(named("m"), asked, readers)
    stats = Stats(steps=[Pass(0.0, "none", 0, 0, n_tokens=1)] * 4)
    said = [
        *chunks(["a", "b", "</think>", "Yes"], 3),
        Chunk("", finish_reason="stop", stats=stats),
    ]
    if stream:
        assert [event for chunk in said for event in formatter.chunk_events(chunk)]
        *_, body = formatter.last_events(said[-1])
    else:
        body = formatter.body(said)
    found: Any = body["usage"]
    assert found["completion_tokens_details"]["reasoning_tokens"] == 3
