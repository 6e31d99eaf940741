"""Grammars on real vocabularies: whatever they allow they take, and replies follow them, whatever a mark is there."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from itertools import islice

import llama_cpp.llama_cpp as lib
import pytest

from runtime.backends.vocab import Vocab
from runtime.engine import Grammar
from tests.support.collection import collection
from tests.support.marks import Form, bound_forms, walk
from tests.support.vocabulary import opened_vocabulary

# Not those of the two BERT models: these write no text
NAMES = (
    "aquila baichuan command-r deepseek-coder deepseek-llm falcon gemma-4 gpt-2 gpt-neox llama-bpe llama-spm mpt phi-3 "
    "qwen2 qwen35 refact starcoder"
).split()
SEEDS = range(3)
TYPES = {"text": 0, "own": lib.LLAMA_TOKEN_ATTR_USER_DEFINED, "control": lib.LLAMA_TOKEN_ATTR_CONTROL}
OTHERS = {
    "regex": Form(Grammar("regex", "(<call>|no)[a-c]{1,3}"), "(<call>|no)[a-c]{1,3}"),
    "schema": Form(Grammar("json_schema", '{"enum": ["<call>", "é x", 3]}'), '"<call>"|"é x"|3'),
}


@pytest.fixture(scope="module", params=NAMES)
def vocab(request: pytest.FixtureRequest) -> Iterator[Vocab]:
    """One of the collection's."""
    with opened_vocabulary(collection() / f"ggml-vocab-{request.param}.gguf") as found:
        yield found


def marks(vocab: Vocab, kind: str) -> tuple[str, str]:
    """Two marks of that type that end no turn; skips the test where the vocabulary has none."""
    if kind == "text":
        return "<callx>", "</callx>"
    found = (
        text
        for token in range(vocab.n_vocab)
        if int(lib.llama_vocab_get_attr(vocab.handle, token)) & TYPES[kind] and not vocab.ends[token]
        if re.fullmatch(r"\S{3,}", text := vocab.special_text(token))
    )
    both = tuple(islice(found, 2))
    if len(both) < 2:
        pytest.skip(f"no {kind} marks")
    return both[0], both[1]


@pytest.mark.parametrize("kind", TYPES)
def test_calls_and_thoughts_follow_their_grammar(vocab: Vocab, kind: str) -> None:
    begin, end = marks(vocab, kind)
    gbnf = Grammar("gbnf", f'root ::= mark [a-c]+ "{end}"\nmark ::= "{begin}"')
    forms = bound_forms(begin, end) | {"gbnf": Form(gbnf, f"{re.escape(begin)}[a-c]+{re.escape(end)}")}
    for name, form in forms.items():
        for seed in SEEDS:
            text = walk(vocab, form.grammar, seed)
            assert form.fits(text), (name, text)


@pytest.mark.parametrize("name", OTHERS)
def test_regular_expressions_and_schemas_are_followed(vocab: Vocab, name: str) -> None:
    for seed in SEEDS:
        text = walk(vocab, OTHERS[name].grammar, seed)
        assert OTHERS[name].fits(text), text


def test_a_vocabulary_is_prepared_in_about_the_time_that_the_library_takes() -> None:
    from llguidance.llamacpp import lltokenizer_from_vocab

    def by_library(vocab: Vocab) -> None:
        lltokenizer_from_vocab(vocab.handle, eos_token=[vocab.eos])

    def by_us(vocab: Vocab) -> object:
        return vocab.grammar_tokenizer

    def seconds(prepare: Callable[[Vocab], object]) -> float:
        with opened_vocabulary(collection() / "ggml-vocab-qwen2.gguf") as vocab:
            began = time.process_time()
            prepare(vocab)
            return time.process_time() - began

    ours, theirs = (min(seconds(prepare) for _ in range(2)) for prepare in (by_us, by_library))
    assert ours <= 1.25 * theirs
