"""Every family runs: it answers, drafts change none of its replies, and what a cache drops is as if it had never been.

The quick form; `python -m bench.architectures` asks more of each.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.instruments.architectures.families import TEXT, TEXTLESS
from bench.instruments.architectures.trials import ROUNDING, FamilyReply, Rewinds, random_rewinds, replies, requests
from bench.instruments.architectures.writer import write_family
from runtime.core.errors import ModelError
from runtime.engine import Message, Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.models.registry import Pair
from tests.support import quick
from tests.support.quick import others_slow

N_CTX = 512
N_PASSES = 24  # of a walk
ASKED = requests([(0.0, 1), (0.9, 7)], max_tokens=24)
DRAFTING = {
    "fixed": Options(drafters=("model", "ngram"), fixed_k=6, threads=1, n_ctx=N_CTX),
    "adaptive": Options(threads=1, n_ctx=N_CTX),
}


@pytest.fixture(scope="module", params=others_slow(TEXT, quick.FAMILIES))
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_family(request.param, tmp_path_factory.mktemp("families"))


@pytest.fixture(scope="module")
def plain(model: Path) -> list[FamilyReply]:
    return replies(model, None, Options(drafters=(), threads=1, n_ctx=N_CTX), ASKED)


@pytest.fixture(scope="module")
def walk(model: Path) -> Rewinds:
    return random_rewinds(model, N_PASSES, N_CTX)


def test_it_answers(model: Path) -> None:
    engine = LoadedEngine(Pair("x", model), Options(threads=1, n_ctx=N_CTX))
    chunks = list(engine.reply([Message("user", "hello")], Sampling(0.0), 8))
    engine.close()
    assert sum(len(chunk.tokens) for chunk in chunks) > 0
    assert chunks[-1].finish_reason in {"stop", "length"}


@pytest.mark.parametrize("kind", DRAFTING)
def test_it_says_the_same_with_drafts(model: Path, plain: list[FamilyReply], kind: str) -> None:
    drafted = replies(model, model, DRAFTING[kind], ASKED)
    assert [said.tokens for said in drafted] == [said.tokens for said in plain]
    assert [said.text for said in drafted] == [said.text for said in plain]
    assert all(said.n_drafted or said.why_plain for said in drafted)


def test_after_rewinds_it_reads_the_context_as_if_for_the_first_time(walk: Rewinds) -> None:
    assert walk.worst <= ROUNDING


def test_rows_are_decoded_as_foretold(walk: Rewinds) -> None:
    assert walk.n_miscounted == 0


@pytest.mark.parametrize("name", TEXTLESS)
def test_what_writes_no_text_is_refused_in_a_sentence(name: str, tmp_path: Path) -> None:
    path = write_family(name, tmp_path)
    with pytest.raises(ModelError, match=rf"^{name}\.gguf is an? .+: Slipstream runs models that write text\. .+\.$"):
        LoadedEngine(Pair("x", path), Options(threads=1, n_ctx=256))
