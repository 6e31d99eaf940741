"""Grammars know marks as the vocabulary has them: as plain text, as tokens that are text, and as control tokens."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from runtime.backends.vocab import Vocab
from runtime.core.errors import SettingsError
from runtime.engine import Grammar, Ids, Options, Sampling, ThoughtBudget
from runtime.engine.binding import masks
from runtime.engine.engine import Ask
from runtime.engine.loaded import LoadedEngine
from runtime.models.registry import Pair
from runtime.sampling.control_tokens import ControlTokens, ranges
from runtime.sampling.gbnf_lark import gbnf_as_lark
from runtime.sampling.grammar import compile_grammar
from runtime.sampling.lark import LarkGrammar
from runtime.sampling.thoughts import CHARACTER
from tests.support.marks import Form, bound_forms, walk, write_marked
from tests.support.vocabulary import opened_vocabulary

MARKS = ("<call>", "</call>", "<think>", "</think>", "[x]")
CONTROL = ControlTokens(
    {"<call>": 5, "<call": 6, "[x]": 7, "[y]": 8}, frozenset({1, 2}), {"<call>": 5, "<own>": 40, "<end>": 1}.get
)
KINDS: dict[str, dict[str, Sequence[str]]] = {"text": {}, "own": {"own": MARKS}, "control": {"control": MARKS}}


@pytest.fixture(scope="module", params=KINDS)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with the marks."""
    return write_marked(tmp_path_factory.mktemp("marks") / f"{request.param}.gguf", **KINDS[request.param])


@pytest.fixture(scope="module")
def vocab(path: Path) -> Iterator[Vocab]:
    """Its vocabulary."""
    with opened_vocabulary(path) as found:
        yield found


@pytest.fixture(scope="module")
def control_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with the marks as control tokens."""
    return write_marked(tmp_path_factory.mktemp("control") / "control.gguf", control=MARKS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('start: "a<call>b"', 'start: ("a" ("<call>" | <[5]>) "b")'),
        ('start: "<call>"*', 'start: (("<call>" | <[5]>))*'),
        ('start: "<call> <call"', 'start: (("<call>" | <[5]>) " " ("<call" | <[6]>))'),
        (r'start: "\u003ccall>\"\n"', r'start: (("<call>" | <[5]>) "\"\n")'),
        ('a: "x"\n | "[x]"', 'a: "x"\n | (("[x]" | <[7]>))'),
        ('start: A\nA: "[x]"', 'start: A\nA: "[x]"'),
        ('_A.2: "[x]"\nstart: _A', '_A.2: "[x]"\nstart: _A'),
        (r"start: /\[x]a/ // [x]", r"start: /\[x]a/ // [x]"),
        ('start: "[x]"i', 'start: "[x]"i'),
        ('f[lazy]: "[x]"\nstart: f', 'f[lazy]: "[x]"\nstart: f'),
        ('stop: "[x]"', 'stop: (("[x]" | <[7]>))'),
        ('f::_: "[x]"\nstart: f::0x1', 'f::_: (("[x]" | <[7]>))\nstart: f::0x1'),
        ('f[capture="[x]:"]: "[x]"', 'f[capture="[x]:"]: (("[x]" | <[7]>))'),
        ('start: %json {"const": "[x]"} # "[x]"', 'start: %json {"const": "[x]"} # "[x]"'),
        ('%ignore "[x]"\nstart: "<end>"', '%ignore "[x]"\nstart: "<end>"'),
        ("start: <own> <call>", "start: <[40]> <[5]>"),
        ("start: <end> <nothing> <[3-5]>", "start: <end> <nothing> <[3-5]>"),
        ("start: <[*]> <[^9]>", "start: <[^1-2]> <[^9,1-2]>"),
        ("start: other_marks", "start: other_marks\nother_marks: <[5-8]>\n"),
        ('start: "[x]" other_marks', 'start: (("[x]" | <[7]>)) other_marks\nother_marks: <[5-6,8]>\n'),
        ("start: <[6-7]> other_marks", "start: <[6-7]> other_marks\nother_marks: <[5,8]>\n"),
        ('start: A other_marks\nA: "[x]"', 'start: A other_marks\nA: "[x]"\nother_marks: <[5-6,8]>\n'),
        ("start: other_marks\nother_marks: /x/", "start: other_marks\nother_marks: /x/"),
        ("start: another_other_marks", "start: another_other_marks"),
    ],
)
def test_the_rules_of_a_grammar_have_control_tokens_besides_their_text(text: str, expected: str) -> None:
    assert LarkGrammar(text, CONTROL).with_tokens() == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('start: "<call>"', {5}),
        ("start: <[5-7]> <[*]> <own>", {5, 6, 7}),
        ("start: other_marks", {5, 6, 7, 8}),
        ("start: /.*/ <end>", set()),
    ],
)
def test_a_grammar_takes_the_control_tokens_that_it_names(text: str, expected: set[int]) -> None:
    assert LarkGrammar(text, CONTROL).tokens == expected


def test_a_token_that_the_vocabulary_lacks_is_refused(vocab: Vocab) -> None:
    with pytest.raises(SettingsError, match="<nothing> is not a token of this model's vocabulary"):
        compile_grammar(Grammar("gbnf", "root ::= !<nothing>"), vocab.grammar_tokenizer, vocab.control_tokens)


@pytest.mark.parametrize("part", ["a", "[", '"', "<", "a:", "a::b", "a "])
def test_long_nonsense_is_read_in_no_time(part: str) -> None:
    text, began = part * 50_000 + '"', time.process_time()
    LarkGrammar(text, CONTROL).with_tokens()
    with pytest.raises(ValueError, match=r"\w"):
        gbnf_as_lark(text, CONTROL)
    assert time.process_time() - began < 3


def test_ids_are_written_as_ranges() -> None:
    assert [ranges(ids) for ids in ([3], [5, 3, 4], [1, 3, 4, 9])] == ["3", "3-5", "1,3-4,9"]


GRAMMARS = bound_forms("<call>", "</call>") | {
    "gbnf": Form(Grammar("gbnf", 'root ::= mark [a-c]+ "[x]"\nmark ::= "<call>"'), r"<call>[a-c]+\[x\]"),
    "regex": Form(Grammar("regex", "(<call>|no)[a-c]{1,3}"), "(<call>|no)[a-c]{1,3}"),
    "schema": Form(Grammar("json_schema", '{"enum": ["<call>", "<think>x", 3]}'), '"<call>"|"<think>x"|3'),
}


@pytest.mark.parametrize("name", GRAMMARS)
def test_whatever_a_grammar_allows_it_takes_and_the_reply_follows_it(vocab: Vocab, name: str) -> None:
    for seed in range(12):
        text = walk(vocab, GRAMMARS[name].grammar, seed)
        assert GRAMMARS[name].fits(text), text


@pytest.mark.parametrize("name", ["required", "auto", "thought", "gbnf"])
def test_a_mark_may_be_its_token(vocab: Vocab, name: str) -> None:
    """Replies would follow the grammar also if they had to spell every mark."""
    (mask,) = masks(vocab, GRAMMARS[name].grammar, None)
    tokens = vocab.encode("<call>", special=True)
    assert mask.allowed(())[tokens[0]]
    mask.begin(np.array(tokens, dtype=np.int32))
    assert not mask.allowed(()).all()


def test_every_token_that_ends_a_turn_ends_a_complete_reply(vocab: Vocab) -> None:
    (mask,) = masks(vocab, Grammar("regex", "a"), None)
    done = vocab.encode("a", special=False)
    mask.begin(np.array(done, dtype=np.int32))
    assert np.flatnonzero(mask.allowed(())).tolist() == [256, 257]
    for end in (256, 257):
        mask.begin(np.array([*done, end], dtype=np.int32))


@pytest.mark.parametrize(("token", "shown"), [("<call>", "'<call>'"), ("b", "'b'"), ("<|end|>", "'<|end|>'")])
def test_a_kept_token_that_the_grammar_does_not_take_is_an_error(control_path: Path, token: str, shown: str) -> None:
    with opened_vocabulary(control_path) as vocab:
        (mask,) = masks(vocab, Grammar("regex", "aa"), None)
        kept = vocab.encode(f"a{token}", special=True)
        assert np.flatnonzero(mask.allowed(tuple(kept))).tolist() == [256, 257]  # a draft ends there
        with pytest.raises(SettingsError, match=f"The reply has {re.escape(shown)}, which its grammar does not allow"):
            mask.begin(np.array(kept, dtype=np.int32))


WAYS: list[dict[str, object]] = [{"drafters": ()}, {"drafters": ("model",), "fixed_k": 3}]


@pytest.fixture(params=WAYS, ids=["plain", "drafts"])
def engine(request: pytest.FixtureRequest, control_path: Path) -> Iterator[LoadedEngine]:
    """A model with control tokens that also drafts for itself."""
    pair = Pair("marks", control_path, draft=control_path, context=512)
    found = LoadedEngine(pair, Options(threads=1, **request.param))
    yield found
    found.close()


def as_token(engine: LoadedEngine) -> Sampling:
    """Marks are not spelled: their first character is forbidden."""
    return Sampling(seed=1, logit_bias=tuple((engine.tokenize(text)[0], float("-inf")) for text in "<["))


MARKED = Grammar("lark", 'start: "<call>" /[a-c]{2}/ "[x]"')


def test_control_tokens_that_a_grammar_asks_for_are_text_of_the_reply(engine: LoadedEngine) -> None:
    chunks = list(engine.reply("Q", as_token(engine), 50, grammar=MARKED, n_logprobs=1))
    text = "".join(chunk.text for chunk in chunks)
    assert re.fullmatch(r"<call>[a-c]{2}\[x\]", text), text
    assert "".join(piece for chunk in chunks for piece in chunk.pieces) == text
    entries = [entry for chunk in chunks for entry in chunk.logprobs if not engine.is_end(entry.token)]
    assert "".join(engine.token_text(entry.token) for entry in entries) == text


def test_a_stop_string_may_be_a_mark(engine: LoadedEngine) -> None:
    chunks = list(engine.reply("Q", as_token(engine), 50, grammar=MARKED, stops=("[x]",)))
    assert re.fullmatch("<call>[a-c]{2}", "".join(chunk.text for chunk in chunks))
    assert (chunks[-1].finish_reason, chunks[-1].stop) == ("stop", "[x]")


def test_a_reply_without_a_grammar_shows_no_control_token(engine: LoadedEngine) -> None:
    wanted = engine.tokenize("<call>")
    sampling = Sampling(0, logit_bias=((wanted[0], 1e9),))
    chunks = list(engine.reply("Q", sampling, 3))
    assert [token for chunk in chunks for token in chunk.tokens] == wanted * 3
    assert "".join(chunk.text for chunk in chunks) == ""


def test_a_reply_that_is_taken_up_goes_on_as_it_was(engine: LoadedEngine) -> None:
    prompt, sampling = Ids(tuple(engine.tokenize("Q"))), as_token(engine)

    def said(after: Sequence[int]) -> tuple[list[int], str]:
        ask = Ask(prompt, sampling, 50, grammar=MARKED, stops=("<call>x",), reply_tokens=tuple(after))
        chunks = list(engine.answer(ask, lambda: False, lambda done, total: None))
        return [token for chunk in chunks for token in chunk.tokens], "".join(chunk.text for chunk in chunks)

    tokens, text = said(())
    assert said(tokens[:1]) == (tokens[1:], text)  # until then the mark may have begun the stop string
    assert said(tokens[:2]) == (tokens[2:], text[len("<call>") + 1 :])


def test_a_thought_may_end_with_a_control_token_that_its_grammar_takes(engine: LoadedEngine) -> None:
    never_ends = tuple((token, float("-inf")) for token in engine.end_tokens)
    free = Grammar("lark", "start: (FREE other_marks)* FREE\nFREE: /[^<]*/")
    thoughts = ThoughtBudget(3, "<think>", "</think>", is_open=True)
    chunks = list(engine.reply("Q", Sampling(seed=1, logit_bias=never_ends), 9, grammar=free, thoughts=thoughts))
    tokens = [token for chunk in chunks for token in chunk.tokens]
    (end,) = engine.tokenize("</think>")
    assert end in tokens[: 3 + CHARACTER]  # a character that was begun is finished
    assert "</think>" in "".join(chunk.text for chunk in chunks)


def test_rules_of_the_users_own_are_kept_apart(control_path: Path) -> None:
    with opened_vocabulary(control_path) as vocab:
        (call,) = vocab.encode("<call>", special=True)
        b = vocab.encode("b", special=False)
        own = Grammar("lark", 'start: other_marks "<call>"\n?other_marks: "b"')
        named = Grammar("gbnf", f'root ::= "<call>" token-{call}\ntoken-{call} ::= "b"')
        escaped = Grammar("gbnf", 'root ::= "\\x62<call>"')
        captured = Grammar("lark", 'start: a\na[capture="stop"]: "b<call>"')
        for grammar, reply in ((own, [*b, call]), (named, [call, *b]), (escaped, [*b, call]), (captured, [*b, call])):
            (mask,) = masks(vocab, grammar, None)
            for i, token in enumerate(reply):
                assert mask.allowed(tuple(reply[:i]))[token], (grammar, i)
