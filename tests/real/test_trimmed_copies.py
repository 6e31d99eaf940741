"""Copies of public models with fewer words give what the whole ones give, and draft without changing the text."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.instruments.weights import MODELS
from runtime.engine import Options
from runtime.engine.loaded import LoadedEngine
from runtime.models.facts import ModelFacts
from runtime.models.header import read_header
from runtime.models.trimmed import choose, is_worth_it, n_kept, write
from runtime.training.trimmed_drafts import are_alike
from tests.real.asking import CASES, SHORT, ask
from tests.real.conftest import FindPair, SayPlainly


@pytest.mark.parametrize("model", MODELS)
def test_a_copy_is_exact_and_drafts_for_the_model_that_it_was_made_from(
    model: str, real_pair: FindPair, said_plainly: SayPlainly, tmp_path: Path
) -> None:
    pair, copy = real_pair(model), tmp_path / "copy-words.gguf"
    facts = ModelFacts(read_header(pair.target))
    assert is_worth_it(pair.target, facts)
    write(pair.target, copy, choose(facts, np.zeros(facts.n_vocab, dtype=np.int64)))
    assert are_alike(pair.target, copy)
    assert copy.stat().st_size < facts.n_bytes - n_kept(facts)
    with closing(
        LoadedEngine(replace(pair, draft=copy), Options(drafters=("model",), fixed_k=2, exact=True))
    ) as engine:
        for case in SHORT:
            said = ask(engine, CASES[case])
            assert said.tokens == said_plainly(model, True, case).tokens
            assert said.drafted["model"]["accepted"] > 0
