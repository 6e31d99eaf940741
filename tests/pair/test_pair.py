"""A public pair of target and draft model, Qwen2.5-Coder 1.5B and 0.5B: `make test-pair` fetches 1.6 GB."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest

from app.models.pair import pair_up
from bench.instruments.weights import LARGE, MODELS, FetchError, fetched
from runtime.engine import Message, Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.models.registry import Pair

pytestmark = pytest.mark.pair
QUESTION = [Message("user", "Write a Python function that returns the prime numbers below n.")]
SAMPLINGS = Sampling(temperature=0, seed=7), Sampling(temperature=0.8, seed=7)


@pytest.fixture(scope="module")
def pair() -> Pair:
    try:
        return Pair("qwen", fetched(LARGE["qwen-1.5b"]), draft=fetched(MODELS["qwen-0.5b"]), context=2048)
    except FetchError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def plain(pair: Pair) -> list[str]:
    with closing(LoadedEngine(pair, Options(drafters=()))) as engine:
        return [said(engine, sampling) for sampling in SAMPLINGS]


def said(engine: LoadedEngine, sampling: Sampling) -> str:
    return "".join(chunk.text for chunk in engine.reply(QUESTION, sampling, 48))


@pytest.mark.parametrize("options", [Options(), Options(drafters=("model",), fixed_k=2)], ids=["adaptive", "K=2"])
def test_with_a_seed_the_text_is_plain_decodes(pair: Pair, plain: list[str], options: Options) -> None:
    with closing(LoadedEngine(pair, options)) as engine:
        assert [said(engine, sampling) for sampling in SAMPLINGS] == plain


def test_the_draft_model_is_used_or_it_is_said_why_not(pair: Pair) -> None:
    with closing(LoadedEngine(pair, Options())) as engine:
        names = [each.name for each in engine.decoder.active.drafters]
        assert ("model" in names) != ("cannot pay here" in engine.facts.left_out)


def test_the_search_finds_the_draft_model_and_says_in_numbers_what_it_would_make(
    pair: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    pair_up(str(pair.target), [])
    told = capsys.readouterr()
    assert "qwen2.5-coder-0.5b" in told.out + told.err
    assert "ms" in told.out + told.err or "times" in told.out + told.err
    assert replace(pair, draft=None).target.is_file()
