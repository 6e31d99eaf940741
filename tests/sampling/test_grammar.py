"""Grammars on the real vocabulary: what comes always validates, with any drafter, and is what plain decode would have
written.
"""

from __future__ import annotations

import ctypes
import re
from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.instruments.texts import SCHEMA, follows_schema
from runtime.core.drafter import Budget, Pick
from runtime.core.errors import SettingsError
from runtime.drafters.grammar import GrammarDrafter
from runtime.engine import Engine, Grammar, Message, Sampling
from runtime.sampling.grammar import GrammarMask, compile_grammar, reason_of
from tests.conftest import OpenEngine
from tests.support.quick import others_slow

LARK = 'start: "def " NAME "(): return " NUMBER\nNAME: /[a-z]{3,8}/\nNUMBER: /[0-9]{1,4}/'
WAYS = [{"drafters": ("model",), "fixed_k": 3}, {"drafters": ("grammar",), "fixed_k": 8}, {}]


def said(engine: Engine, grammar: Grammar, seed: int, temperature: float = 1.0) -> tuple[str, list[int], int]:
    sampling = Sampling(temperature, seed=seed)
    chunks = list(engine.reply([Message("user", f"What is number {seed}?")], sampling, 120, grammar=grammar))
    assert chunks[-1].finish_reason == "stop"
    assert chunks[-1].stats is not None
    tokens = [token for chunk in chunks for token in chunk.tokens]
    return "".join(chunk.text for chunk in chunks), tokens, chunks[-1].stats.draft_n_accepted


def is_valid(grammar: Grammar, text: str) -> bool:
    """By other means than the library that made it."""
    if grammar.kind == "regex":
        return re.fullmatch(grammar.text, text) is not None
    if grammar.kind == "lark":
        return re.fullmatch(r"def [a-z]{3,8}\(\): return [0-9]{1,4}", text) is not None
    return follows_schema(text)


GRAMMARS = [Grammar("json_schema", SCHEMA), Grammar("regex", "(yes|no), [a-z]{1,9}!"), Grammar("lark", LARK)]


@pytest.mark.parametrize("seeds", others_slow([(0, 1, 2), (3, 4, 5)], [(0, 1, 2)]), ids=str)
@pytest.mark.parametrize("grammar", GRAMMARS, ids=lambda grammar: grammar.kind)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(f"{key}={value}" for key, value in way.items()) or "all")
def test_every_reply_validates_and_is_plain_decodes(
    open_demo: OpenEngine, way: dict[str, object], grammar: Grammar, seeds: tuple[int, ...]
) -> None:
    engine, plain, accepted = open_demo(**way), open_demo(drafters=()), 0
    for seed in seeds:
        text, tokens, n = said(engine, grammar, seed, temperature=(0.0, 0.7, 1.2)[seed % 3])
        assert is_valid(grammar, text), text
        assert tokens == said(plain, grammar, seed, temperature=(0.0, 0.7, 1.2)[seed % 3])[1]
        accepted += n
    assert accepted > 0 or "fixed_k" not in way  # else whether drafting pays is this machine's to say


def test_forced_text_is_a_draft_that_is_nearly_always_right(open_demo: OpenEngine) -> None:
    chunks = list(open_demo(drafters=("grammar",), fixed_k=8).reply("Q", Sampling(0), 120, grammar=GRAMMARS[0]))
    stats = chunks[-1].stats
    assert stats is not None
    assert stats.drafters["grammar"] > 0
    assert stats.draft_n_accepted > 0.8 * stats.draft_n


def test_without_a_seed_it_validates_too(open_demo: OpenEngine) -> None:
    for _ in range(5):
        chunks = open_demo().reply("Q", Sampling(1.2), 120, grammar=GRAMMARS[0])
        assert is_valid(GRAMMARS[0], "".join(chunk.text for chunk in chunks))


def test_any_json_object_is_one(open_demo: OpenEngine) -> None:
    text = "".join(
        c.text for c in open_demo().reply("Q", Sampling(0, logit_bias=()), 200, grammar=Grammar("json_object"))
    )
    assert text.lstrip().startswith("{")


@pytest.mark.parametrize(
    ("grammar", "named"),
    [
        (Grammar("json_schema", '{"type": 3}'), "json_schema"),
        (Grammar("json_schema", '{"type"'), "not valid JSON"),
        (Grammar("json_schema", "[1]"), "a schema is an object"),
        (Grammar("regex", "(abc"), "regex"),
        (Grammar("lark", "start: nothing"), "unknown name"),
        (Grammar("xml", ""), "no grammar kind 'xml'"),
    ],
)
def test_an_invalid_grammar_is_refused_before_anything_is_generated(
    open_demo: OpenEngine, grammar: Grammar, named: str
) -> None:
    with pytest.raises(SettingsError, match=named):
        open_demo().reply("Q", Sampling(0), grammar=grammar)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5)), max_size=12), st.integers(0, 2**32))
def test_the_grammar_is_only_a_memo(open_demo: OpenEngine, walks: list[tuple[int, int]], seed: int) -> None:
    """Asked for paths in any order while the reply grows, tokens that it forbids among them, it allows what a fresh one
    allows.
    """
    vocab, rng, n = open_demo(drafters=()).vocab, np.random.default_rng(seed), 0
    old = GrammarMask(compile_grammar(GRAMMARS[0], vocab.grammar_tokenizer), vocab.n_vocab)
    right = vocab.encode('{"function": "list", "safe": true, "arity": 2}', special=False)
    for more, k in walks:
        n += int(rng.random() < 0.5) * more
        reply, path = np.array(right[:n], dtype=np.int32), tuple(right[n : n + k])
        if rng.random() < 0.3:
            path = (*path, int(rng.integers(0, vocab.n_vocab)))
        fresh = GrammarMask(compile_grammar(GRAMMARS[0], vocab.grammar_tokenizer), vocab.n_vocab)
        for mask in (old, fresh):
            mask.begin(reply)
        assert np.array_equal(old.allowed(path), fresh.allowed(path))
        assert old.forced() == fresh.forced()


def test_after_a_path_is_allowed_what_is_allowed_once_it_was_said(open_demo: OpenEngine) -> None:
    vocab = open_demo(drafters=()).vocab
    right = vocab.encode('{"function": "list", "safe": true, "arity": 2}', special=False)
    guessing, saying = (
        GrammarMask(compile_grammar(GRAMMARS[0], vocab.grammar_tokenizer), vocab.n_vocab) for _ in range(2)
    )
    for n in range(len(right) - 3):
        guessing.begin(np.array(right[:n], dtype=np.int32))
        saying.begin(np.array(right[: n + 3], dtype=np.int32))
        assert np.array_equal(guessing.allowed(tuple(right[n : n + 3])), saying.allowed(()))
        assert guessing.allowed(())[right[n]]


class Fragile:
    """A matcher that breaks for good on token 9, as llguidance's does when a limit is reached."""

    def __init__(self) -> None:
        self.consumed, self.broken = list[int](), False

    def deep_copy(self) -> Fragile:
        return Fragile()

    def rollback(self, n: int) -> bool:
        del self.consumed[len(self.consumed) - n :]
        return not self.broken

    def try_consume_tokens(self, tokens: list[int]) -> int:
        self.broken = self.broken or 9 in tokens
        self.consumed += [] if self.broken else tokens
        return 0 if self.broken else len(tokens)

    def is_error(self) -> bool:
        return self.broken

    def get_error(self) -> str:
        return "too complex"

    def unsafe_compute_mask_ptr(self, address: int, size: int) -> None:
        ctypes.memset(address, 0, size)
        ctypes.memset(address, 1 << len(self.consumed), 1)


def test_a_grammar_that_breaks_on_a_guess_goes_on_being_enforced() -> None:
    mask = GrammarMask(Fragile(), 32)  # type: ignore[arg-type]  # a stand-in
    mask.begin(np.array([1, 2], dtype=np.int32))
    with pytest.raises(SettingsError, match="cannot be followed: too complex"):
        mask.allowed((3, 9))
    assert np.flatnonzero(mask.allowed((3,))).tolist() == [3]
    mask.begin(np.array([1, 2, 3], dtype=np.int32))
    assert np.flatnonzero(mask.allowed(())).tolist() == [3]


def test_a_grammar_whose_masks_take_long_ends_its_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = count(step=0.3)
    monkeypatch.setattr("time.thread_time", lambda: next(clock))
    mask = GrammarMask(Fragile(), 32)  # type: ignore[arg-type]  # a stand-in
    for n in range(1, 7):
        mask.begin(np.arange(n, dtype=np.int32))
        mask.allowed(())
    mask.begin(np.arange(7, dtype=np.int32))
    with pytest.raises(SettingsError, match="takes too long to follow"):
        mask.allowed(())


def test_a_bias_against_all_that_the_grammar_allows_is_said(open_demo: OpenEngine) -> None:
    never_ends = Sampling(0, logit_bias=tuple((token, float("-inf")) for token in open_demo().end_tokens))
    for options in ({}, {"drafters": ()}, {"drafters": ("model",), "fixed_k": 3}):
        with pytest.raises(SettingsError, match="logit_bias forbids what the grammar demands"):
            list(open_demo(**options).reply("Q", never_ends, 200, grammar=Grammar("regex", "yes")))
        assert open_demo(**options).decoder.active.failed is None


def test_what_the_library_says_becomes_a_clause() -> None:
    assert reason_of("at 7(5): initial lexer configuration (grammar) too big (limit: 1).") == "it is too large"
    assert reason_of("Parser Error: NoExtensionBias") == "no text follows it"
    assert reason_of("1(8): unknown name: nothing.\n1 | start") == "1(8): unknown name: nothing"


def test_a_schema_that_nests_too_deeply_is_refused_in_a_sentence(open_demo: OpenEngine) -> None:
    schema = '{"not": ' * 300 + "{}" + "}" * 300
    for text in (
        schema,
        '{"items": ' * 5000 + "{}" + "}" * 5000,
        '{"type": "array", "items": ' * 400 + "{}" + "}" * 400,
    ):
        with pytest.raises(SettingsError, match=r"^The json_schema [a-z].*\.$"):
            open_demo().reply("Q", Sampling(0), grammar=Grammar("json_schema", text))


def test_nothing_is_forced_without_a_grammar() -> None:
    budget = Budget(4, lambda confidence: True, lambda row, path: Pick(0, 1.0, None))
    assert len(GrammarDrafter().propose(np.array([1], dtype=np.int32), budget)) == 0
