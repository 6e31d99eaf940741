"""A single short text is read in one call of the models' process, and otherwise as any other."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

import httpx2
import numpy as np
import pytest

from runtime.engine import Options
from runtime.engine.pooling import ReadText
from runtime.engine.process.client import EngineProcess
from runtime.models.registry import Pair
from tests.support.encoders import vector, write_encoder
from tests.support.serving import Running, running
from tests.support.waiting import PATIENCE

TEXT = "a short text"


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, Any]]:
    path, tensors = write_encoder(tmp_path_factory.mktemp("models"))
    pair = Pair(path.stem, path, context=0)
    with running(lambda on_progress: EngineProcess(pair, Options(threads=1), on_progress)) as here:
        yield here, tensors


def engine_of(here: Running) -> EngineProcess:
    engine = here.server.served.engine
    assert isinstance(engine, EngineProcess)
    return engine


def asked(here: Running, given: Any, **more: Any) -> httpx2.Response:
    return here.client().post("/v1/embeddings", json={"input": given} | more)


def test_it_is_read_in_one_call_and_its_vector_is_right(
    encoder: tuple[Running, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, tensors = encoder
    (ids,) = engine_of(here).texts_to_ids([TEXT])
    with_ids = asked(here, ids).json()
    monkeypatch.setattr(engine_of(here), "embed", None, raising=False)
    monkeypatch.setattr(engine_of(here), "texts_to_ids", None, raising=False)
    for given in (TEXT, [TEXT]):
        found = asked(here, given).json()
        assert found == with_ids
        assert found["usage"]["prompt_tokens"] == len(ids)
        assert np.array(found["data"][0]["embedding"]) @ vector(tensors, ids) == pytest.approx(1, abs=1e-5)


def test_one_with_too_many_tokens_is_refused_by_their_number(encoder: tuple[Running, Any]) -> None:
    refused = asked(encoder[0], "x " * 700)
    assert refused.status_code == 400
    assert "maximum context length is 512" in refused.json()["error"]["message"]


def test_vectors_that_cannot_be_cut_are_refused(encoder: tuple[Running, Any]) -> None:
    assert asked(encoder[0], TEXT, dimensions=1).status_code == 400


def test_many_at_once_get_their_own_vectors(encoder: tuple[Running, Any]) -> None:
    here, tensors = encoder
    texts = [f"text number {i} of many" for i in range(40)]
    with ThreadPoolExecutor(8) as pool:
        found = [*pool.map(lambda text: asked(here, text).json()["data"][0]["embedding"], texts)]
    for row, ids in zip(found, engine_of(here).texts_to_ids(texts), strict=True):
        assert np.array(row) @ vector(tensors, ids) == pytest.approx(1, abs=1e-3)


def test_it_is_counted_as_others_are(encoder: tuple[Running, Any]) -> None:
    here, _ = encoder
    totals = here.server.served.totals
    n_texts, n_tokens = totals.n_embedded, totals.prompt_n
    n = asked(here, TEXT).json()["usage"]["prompt_tokens"]
    assert (totals.n_embedded, totals.prompt_n) == (n_texts + 1, n_tokens + n)


def test_it_is_asked_for_again_where_the_process_was_lost(encoder: tuple[Running, Any]) -> None:
    here, _ = encoder
    whole = asked(here, TEXT).json()
    process = engine_of(here).kept.current
    process.kill()
    came = SimpleQueue[ReadText | Exception | None]()
    assert not engine_of(here).read_text(TEXT, came.put) or came.get(timeout=PATIENCE) is None
    assert asked(here, TEXT).json() == whole
    assert engine_of(here).kept.current is not process
