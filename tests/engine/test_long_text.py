"""Long texts are cut where that changes no token."""

from __future__ import annotations

from random import Random

import pytest

from runtime.backends import vocab
from runtime.backends.vocab import BLOCK, Cutter
from runtime.core.errors import ContextError
from runtime.engine import Message, Sampling
from tests.conftest import OpenEngine

GREEDY = Sampling(temperature=0)


def test_parts_are_the_whole_and_begin_with_a_mark() -> None:
    text = "some text <a>" * BLOCK
    parts = list(Cutter(["<a>", "<b>"]).parts(text))
    assert "".join(parts) == text
    assert len(parts) > 10
    assert all(part.startswith("<a>") and len(part) < 2 * BLOCK for part in parts[1:])


@pytest.mark.parametrize(
    ("marks", "eager", "text"),
    [
        ((), (), "x" * 3 * BLOCK),
        (("<a>",), ("<a>",), "x<a>" * BLOCK),  # takes in what stands before it
        (("\n", "\n" * 9), (), "\n" * 3 * BLOCK),  # a longer one may lie across any place
    ],
    ids=["nothing to cut at", "eager", "runs"],
)
def test_a_text_is_not_cut_where_that_might_change_it(marks: list[str], eager: list[str], text: str) -> None:
    assert list(Cutter(marks, eager).parts(text)) == [text]


@pytest.mark.parametrize("special", [True, False])
def test_a_cut_text_has_the_tokens_of_the_whole(
    open_demo: OpenEngine, special: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, rng = open_demo(threads=1).vocab, Random(1)
    pieces = ["<|im_start|>", "<|im_end|>", "<|im_", "user", "\n", " ", "  a b", "ü", "def f(x):", "<", "<|endoftext|>"]
    for _ in range(5):
        text = "".join(rng.choice(pieces) for _ in range(8000))
        assert len(list(words._cutters[True].parts(text))) > 2
        cut = words.encode(text, special=special)
        with monkeypatch.context() as patch:
            patch.setattr(vocab, "BLOCK", len(text))
            assert words.encode(text, special=special) == cut


def test_what_cannot_fit_is_refused_before_it_is_read(open_demo: OpenEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = open_demo(threads=1)
    long = "x" * (engine.facts.n_ctx * engine.vocab.longest + 1)
    monkeypatch.setattr(engine.vocab, "encode", lambda *_, **__: 1 / 0)
    for prompt in (long, [Message("user", long)]):
        with pytest.raises(ContextError, match=r"at least \d+ tokens"):
            engine.reply(prompt, GREEDY)
    with pytest.raises(ContextError):
        engine.tokenize(long, bos=True)


def test_a_long_conversation_may_lose_turns_all_the_same(open_demo: OpenEngine) -> None:
    engine = open_demo(threads=1)
    turns = [Message("user", "x" * (engine.facts.n_ctx * engine.vocab.longest)), Message("assistant", "Yes.")]
    *_, last = engine.reply([*turns, Message("user", "What is a list?")], GREEDY, 3, when_full="drop-oldest")
    assert last.finish_reason == "length"
