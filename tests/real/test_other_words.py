"""Draft models of another vocabulary, with public vocabularies and models."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

import numpy as np
import pytest

from bench.instruments.weights import MODELS
from runtime.backends.translation import NOWHERE, SAMPLE, SharedWords, Translator
from runtime.backends.vocab import Vocab
from runtime.core.draft import Tokens
from runtime.engine import Options
from runtime.engine.loaded import LoadedEngine
from tests.real.asking import CASES, SHORT, ask
from tests.real.conftest import FindPair, SayPlainly
from tests.real.test_quoting import VOCABULARIES
from tests.support.collection import collection
from tests.support.vocabulary import opened_vocabulary

TEXT = SAMPLE * 3 + " 東京は日本の首都です。\n\n\tРоссия 3.14159  Ω≈ç√ \r\n👩‍👩‍👧 end"
FOREIGN = [(target, draft) for target in MODELS for draft in MODELS if target != draft]


@contextmanager
def both(target: str, draft: str) -> Iterator[tuple[Vocab, Vocab]]:
    files = (collection() / f"ggml-vocab-{name}.gguf" for name in (target, draft))
    with opened_vocabulary(next(files)) as ours, opened_vocabulary(next(files)) as theirs:
        yield ours, theirs


def spelled(vocab: Vocab, tokens: Tokens) -> bytes:
    return b"".join(vocab.pieces[int(token)] for token in tokens)


@pytest.mark.parametrize("step", [1, 5, 9])
@pytest.mark.parametrize("target", VOCABULARIES)
def test_contexts_say_the_same_to_a_draft_model(target: str, step: int) -> None:
    draft = VOCABULARIES[(VOCABULARIES.index(target) + step) % len(VOCABULARIES)]
    with both(target, draft) as (ours, theirs):
        words = SharedWords(ours, theirs)
        assert len(set(words.drafts.tolist())) == len(words.drafts)
        for token, other in zip(words.targets.tolist(), words.drafts.tolist(), strict=True):
            assert ours.pieces[token] == theirs.pieces[other] or ours.ends[token] == theirs.ends[other]
        translate, rng = Translator(words, ours, theirs), random.Random(step)
        whole = [token for token in ours.encode(TEXT, special=False) if ours.pieces[token]]
        unknown = {byte for byte in range(256) if byte not in words.single_bytes}
        for n in [len(whole), *(rng.randrange(1, len(whole)) for _ in range(25))]:
            found = translate(np.array(whole[:n], np.int32))
            said = bytes(byte for byte in spelled(ours, found.target) if byte not in unknown)
            assert bytes(byte for byte in spelled(theirs, found.draft) if byte not in unknown) == said
            assert found.ends[0] != NOWHERE


@pytest.mark.parametrize(("target", "draft"), FOREIGN)
def test_texts_are_plain_decodes(target: str, draft: str, real_pair: FindPair, said_plainly: SayPlainly) -> None:
    pair = replace(real_pair(target), draft=real_pair(draft).target)
    with closing(LoadedEngine(pair, Options(drafters=("model",), fixed_k=2, exact=True))) as engine:
        for case in SHORT:
            said = ask(engine, CASES[case])
            assert said.tokens == said_plainly(target, True, case).tokens
            assert said.drafted["model"]["accepted"] > 0
