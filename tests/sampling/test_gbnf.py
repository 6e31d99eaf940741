"""Grammars in llama.cpp's notation allow what llama.cpp's own reader allows, text by text."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from runtime.backends.vocab import Vocab
from runtime.core.errors import SettingsError
from runtime.sampling.control_tokens import ControlTokens
from runtime.sampling.gbnf_lark import gbnf_as_lark
from runtime.sampling.grammar import Grammar, compile_grammar
from tests.support.gbnf_grammars import GRAMMARS, INVALID, JSON, grammars
from tests.support.llama_grammar import LlamaGrammar, llama_grammar
from tests.support.marks import write_marked
from tests.support.vocabulary import opened_vocabulary

CONTROL = ControlTokens(
    {"<call>": 5, "<call": 6, "[x]": 7, "[y]": 8}, frozenset({1, 2}), {"<call>": 5, "<own>": 40, "<end>": 1}.get
)
USUAL = [*"abx01()=+-*/.,;:{}[]\"'\\ \n\t#_AZé"]
LONGEST = 10  # characters of a walk


@pytest.fixture(scope="module")
def vocab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vocab]:
    """A vocabulary with a token for every byte."""
    with opened_vocabulary(write_marked(tmp_path_factory.mktemp("bytes") / "bytes.gguf")) as found:
        yield found


class Ours:
    """A grammar as it is enforced here."""

    def __init__(self, text: str, vocab: Vocab) -> None:
        self._vocab = vocab
        self._matcher = compile_grammar(Grammar("gbnf", text), vocab.grammar_tokenizer, vocab.control_tokens)

    def n_taken(self, text: str) -> int:
        """How many bytes of a text it allows; one more if the text may end there."""
        matcher, tokens = self._matcher.deep_copy(), self._vocab.encode(text, special=False)
        n = matcher.try_consume_tokens(tokens)
        return n + int(n == len(tokens) and matcher.is_accepting())


def compare(text: str, ours: Ours, theirs: LlamaGrammar, seed: int) -> None:
    """Walks through both at once: at every step they take the same characters."""
    rng, said = random.Random(seed), ""
    alphabet = list(dict.fromkeys([*USUAL, *(each for each in text if each.isprintable())]))
    for _ in range(LONGEST):
        found = {said + each: ours.n_taken(said + each) for each in alphabet}
        assert found == {each: theirs.n_taken(each) for each in found}, text
        going_on = [each for each, n in found.items() if n >= len(each.encode())]
        if not going_on:
            return
        said = rng.choice(going_on)


def test_there_are_a_hundred_of_them() -> None:
    assert len(set(GRAMMARS)) >= 100


@pytest.mark.parametrize("text", GRAMMARS)
def test_a_grammar_allows_what_llama_cpp_allows(vocab: Vocab, text: str) -> None:
    ours = Ours(text, vocab)
    with llama_grammar(text, vocab) as theirs:
        if theirs is None:
            pytest.skip("llama.cpp refuses it, because a part refers to itself at once")
        for seed in range(2):
            compare(text, ours, theirs, seed)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=grammars)
def test_any_grammar_allows_what_llama_cpp_allows(vocab: Vocab, text: str) -> None:
    with llama_grammar(text, vocab) as theirs:
        if theirs is not None:
            compare(text, Ours(text, vocab), theirs, seed=0)


@pytest.mark.parametrize("text", INVALID)
def test_what_llama_cpp_refuses_is_refused_in_a_sentence(vocab: Vocab, text: str) -> None:
    with llama_grammar(text, vocab) as theirs:
        assert theirs is None
    with pytest.raises(SettingsError, match=r"^The gbnf is not valid GBNF: .*\. Correct it and try again\.$"):
        Ours(text, vocab)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ('root ::= "a<call>b"', 'start: "a" r1 "b" r1: "<call>" | <[5]>'),
        ('root ::= mark\nmark ::= "[x]" # "[x]"', 'start: r1 r1: "[x]" | <[7]>'),
        ("root ::= <own> <[3]>+", "start: <[40]> r1 r1: <[3]>+"),
        ("root ::= !<own>* [<own>]", "r1: <[^1-2,40]>*"),
    ],
)
def test_llama_cpps_notation_has_tokens(text: str, rule: str) -> None:
    assert rule in " ".join(gbnf_as_lark(text, CONTROL).split())


def test_a_pair_of_surrogates_is_one_character() -> None:
    assert gbnf_as_lark(r'root ::= "\uD83D\uDE00"', CONTROL) == gbnf_as_lark('root ::= "\U0001f600"', CONTROL)
    with pytest.raises(ValueError, match="a surrogate alone is no character"):
        gbnf_as_lark(r'root ::= "\uD83D"', CONTROL)


def test_a_string_stays_one_lexeme() -> None:
    """Else every character of it would be a step of the parser, on every token of the vocabulary."""
    (string,) = re.findall(r'^(T\d+): "\\"" T\d+ "\\"" T\d+$', gbnf_as_lark(JSON, CONTROL), re.MULTILINE)
    assert re.search(rf"^r\d+: {string} ", gbnf_as_lark(JSON, CONTROL), re.MULTILINE)


def test_rules_that_nest_too_deeply_are_refused_before_anything_is_compiled(vocab: Vocab) -> None:
    chain = (
        "root ::= r0\n" + "\n".join(f'r{i} ::= r{i + 1} "a" | "(" r{i} ")"' for i in range(5000)) + '\nr5000 ::= "b"'
    )
    groups = "root ::= " + "(" * 5000 + '"a"' + ")?" * 5000
    words = "root ::= r0\n" + "\n".join(f'r{i} ::= "x" r{i + 1}' for i in range(5000)) + '\nr5000 ::= "b"'
    for text in (chain, groups, words):
        with pytest.raises(SettingsError, match="lie within each other"):
            Ours(text, vocab)


DOUBLED = "root ::= r0\n" + "\n".join(f"r{i} ::= r{i + 1} r{i + 1}" for i in range(30)) + "\nr30 ::= "
WORDS = [f'"{a}{b}{c}"' for a in "abcdefgh" for b in "abcdefgh" for c in "abcdefghijkl"]


@pytest.mark.parametrize(
    "text",
    [
        DOUBLED + '"(" root ")" | "b" "c"',
        DOUBLED + '"b"',
        f'root ::= "(" root ")" | {" | ".join(WORDS)}',
        f'root ::= "(" root ")" | "aaabb" | {" | ".join(f"{word} root" for word in WORDS)}',
        'root ::= "(" root ")" | ' + " ".join(["[a-z]{1,2000}"] * 50),
    ],
    ids=["doubled", "doubled words", "words", "words that go on", "repeated"],
)
def test_large_grammars_are_allowed_or_refused_soon(vocab: Vocab, text: str) -> None:
    began = time.process_time()
    with suppress(SettingsError):
        Ours(text, vocab)
    assert time.process_time() - began < 5


def test_tokens_are_no_part_of_a_lexeme(tmp_path: Path) -> None:
    with opened_vocabulary(write_marked(tmp_path / "m.gguf", control=["<call>"])) as vocab:
        ours = compile_grammar(
            Grammar("gbnf", 'root ::= [a-z]* <call> [a-z]* "x"'), vocab.grammar_tokenizer, vocab.control_tokens
        )
        (call,) = vocab.encode("<call>", special=True)
        tokens = [*vocab.encode("ab", special=False), call, *vocab.encode("axx", special=False)]
        assert ours.try_consume_tokens(tokens) == len(tokens)
        assert ours.is_accepting()
