"""With keys and values in F16, which long prompts are read fastest with, replies with a seed are plain decode's too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace

import pytest

from runtime.engine import Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.loading import open_pair
from runtime.models.cache_layout import HALVES
from tests.real.asking import CASES, N_CONTEXT, ask
from tests.real.conftest import FindPair

SEEDS = 3, 4, 5
CASE = CASES["long, seeded"]
DRAFTED = Options(drafters=("ngram",), fixed_k=6, slots=3)
PLAIN = Options(drafters=(), slots=3)
MODELS = "smollm2", "qwen-0.5b"


@pytest.fixture(scope="module", params=MODELS)
def engines(request: pytest.FixtureRequest, real_pair: FindPair) -> Iterator[tuple[LoadedEngine, LoadedEngine]]:
    """One without drafts and one with copies of earlier text as drafts."""
    pair = replace(real_pair(request.param), context=N_CONTEXT)
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setattr(open_pair, "fastest", lambda *_: HALVES)
        plain, drafted = (stack.enter_context(closing(LoadedEngine(pair, each))) for each in (PLAIN, DRAFTED))
        assert plain._loaded.backend.attention.has_blocks
        yield plain, drafted


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_says_the_same_with_drafts_in_a_long_context(
    engines: tuple[LoadedEngine, LoadedEngine], seed: int
) -> None:
    plain, drafted = engines
    case = replace(CASE, sampling=Sampling(temperature=0.4, seed=seed))
    assert ask(drafted, case).tokens == ask(plain, case).tokens


def test_cells_of_a_reply_without_a_seed_change_nothing(engines: tuple[LoadedEngine, LoadedEngine]) -> None:
    """Those of its prompt, of a longer one, and of the reply."""
    plain, _ = engines
    case = replace(CASE, question=CASE.question[:-41], sampling=Sampling(temperature=0.4, seed=9))
    first = ask(plain, case)
    free = replace(case, sampling=Sampling(temperature=1.0))
    for before in (free, replace(free, question=case.question + first.text[:200]), replace(free, question="Else.")):
        ask(plain, before)
        assert ask(plain, case).tokens == first.tokens
