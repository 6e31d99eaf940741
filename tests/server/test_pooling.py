"""A served embedding or reranking model, asked as the real clients and llama.cpp's own tests ask."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import ollama
import openai
import pytest

from runtime.engine import Engine, Options
from runtime.engine.pooled import PooledEngine
from runtime.models.registry import Pair
from tests.support.encoders import LONGEST, score, vector, write_encoder
from tests.support.serving import Running, open_plain, running
from tests.support.waiting import PATIENCE

TEXTS = ["a short text", "b", "It is a longer text, of more words.", "word " * 90]
DOCUMENTS = ["One machine.", "A text about learning, and long enough.", "Paris", "What is it?"]


def serving(path: Path) -> Any:
    return running(lambda on_progress: PooledEngine(Pair(path.stem, path, context=0), Options(threads=1), on_progress))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def encoder(folder: Path) -> Iterator[tuple[Running, Any]]:
    path, tensors = write_encoder(folder)
    with serving(path) as here:
        yield here, tensors


@pytest.fixture(scope="module")
def ranking(folder: Path) -> Iterator[tuple[Running, Any]]:
    path, tensors = write_encoder(folder, ranks=True)
    with serving(path) as here:
        yield here, tensors


@pytest.fixture(scope="module")
def client(encoder: tuple[Running, Any]) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{encoder[0].url}/v1", api_key="none", max_retries=0, timeout=PATIENCE) as found:
        yield found


def engine_of(here: Running) -> Engine:
    return here.server.served.engine


def post(here: Running, path: str, **body: Any) -> httpx2.Response:
    return here.client().post(path, json=body)


def test_openais_client_gets_the_right_vectors_in_both_encodings(
    encoder: tuple[Running, Any], client: openai.OpenAI
) -> None:
    here, tensors = encoder
    packed = client.embeddings.create(model="any", input=TEXTS)
    plain = client.embeddings.create(model="any", input=TEXTS, encoding_format="float")
    assert [entry.embedding for entry in packed.data] == [entry.embedding for entry in plain.data]
    ids = engine_of(here).texts_to_ids(TEXTS)
    assert packed.usage.prompt_tokens == sum(map(len, ids))
    found = [np.array(entry.embedding) @ vector(tensors, each) for entry, each in zip(packed.data, ids, strict=True)]
    assert found == pytest.approx([1] * len(TEXTS))


def test_token_ids_are_read_as_they_are(encoder: tuple[Running, Any], client: openai.OpenAI) -> None:
    ids = engine_of(encoder[0]).texts_to_ids([TEXTS[0]])[0]
    one, other = (client.embeddings.create(model="any", input=given).data[0].embedding for given in (ids, TEXTS[0]))
    assert one == other
    both = client.embeddings.create(model="any", input=[ids, ids[:3]])
    assert np.array(both.data[0].embedding) == pytest.approx(np.array(one), abs=1e-3)


def test_a_long_list_comes_back_in_its_order(encoder: tuple[Running, Any], client: openai.OpenAI) -> None:
    texts = [f"{'word ' * (i % 37)}number {i}" for i in range(3000)]
    found = client.embeddings.create(model="any", input=texts)
    assert [entry.index for entry in found.data] == list(range(3000))
    ids = engine_of(encoder[0]).texts_to_ids(texts)
    for i in (0, 17, 2999):
        assert np.array(found.data[i].embedding) @ vector(encoder[1], ids[i]) == pytest.approx(1, abs=1e-4)


def test_ollamas_client_gets_them_too_and_long_texts_are_cut(encoder: tuple[Running, Any]) -> None:
    here, tensors = encoder
    asking = ollama.Client(here.url)
    found = asking.embed("any", [TEXTS[0], "x " * 2000, "x " * 200_000])
    whole = engine_of(here).texts_to_ids([TEXTS[0], "x " * 2000])
    cut = [*whole[1][: LONGEST - 1], whole[1][-1]]
    assert np.array(found.embeddings[0]) @ vector(tensors, whole[0]) == pytest.approx(1, abs=1e-4)
    for row in found.embeddings[1:]:
        assert np.array(row) @ vector(tensors, cut) == pytest.approx(1, abs=1e-4)
    with pytest.raises(ollama.ResponseError, match="maximum context length is 512"):
        asking.embed("any", "x " * 2000, truncate=False)
    assert asking.show(here.server.served.model).capabilities == ["embedding"]


def test_llamacpps_form_is_a_list_of_lists(encoder: tuple[Running, Any]) -> None:
    here, _ = encoder
    plain = post(here, "/v1/embeddings", input=TEXTS[0]).json()["data"][0]["embedding"]
    for path, field in (("/embedding", "content"), ("/embedding", "input"), ("/embeddings", "content")):
        assert post(here, path, **{field: TEXTS[0]}).json() == [{"index": 0, "embedding": [plain]}]
    assert post(here, "/embeddings", input=TEXTS[0]).json()["object"] == "list"


def test_texts_come_as_objects_and_among_ids(encoder: tuple[Running, Any]) -> None:
    here, tensors = encoder
    parts = [{"type": "text", "text": "hello "}, {"type": "text", "text": "world"}]
    same = ["hello world", {"prompt_string": "hello world"}, {"content": parts}]
    one, *others = (entry["embedding"] for entry in post(here, "/v1/embeddings", input=same).json()["data"])
    assert others == [pytest.approx(one, abs=1e-3)] * 2
    assert post(here, "/embedding", input=same[2]).json()[0]["embedding"][0] == pytest.approx(one, abs=1e-3)
    (mixed,) = post(here, "/embedding", input=[2, "ab", 3]).json()
    whole = engine_of(here).texts_to_ids(["ab"])[0]
    assert np.array(mixed["embedding"][0]) @ vector(tensors, whole) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "input"),
        ({"input": {"content": "text"}}, "input.0"),
        ({"input": [{}]}, "input.0"),
        ({"input": {"content": [{"type": "image_url", "text": "x"}]}}, "input.0"),
        ({"input": ""}, "input"),
        ({"input": ["a", ""]}, "input"),
        ({"input": []}, "input"),
        ({"input": [[]]}, "input"),
        ({"input": "word " * 3000}, "input"),
        ({"content": "word " * 300_000}, "content"),
        ({"input": [[99_999]]}, "input"),
        ({"input": [[-1]]}, "input.0"),
        ({"input": "x", "dimensions": 64}, "dimensions"),
        ({"input": "x", "dimensions": 0}, "dimensions"),
        ({"input": "x", "encoding_format": "hex"}, "encoding_format"),
    ],
)
def test_what_cannot_be_embedded_is_refused_by_its_name(
    encoder: tuple[Running, Any], body: dict[str, Any], param: str
) -> None:
    reply = post(encoder[0], "/v1/embeddings", **body)
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["param"].startswith(param)


def test_only_vectors_that_may_be_cut_are_cut(tmp_path: Path) -> None:
    path, tensors = write_encoder(tmp_path, name="nomic-embed-text-v1.5")
    with serving(path) as here:
        found = post(here, "/v1/embeddings", input=TEXTS[0], dimensions=32).json()["data"][0]["embedding"]
        whole = vector(tensors, engine_of(here).texts_to_ids([TEXTS[0]])[0])[:32]
        assert found == pytest.approx(whole / np.linalg.norm(whole), abs=1e-3)
        assert len(post(here, "/api/embed", input=TEXTS[0], dimensions=16).json()["embeddings"][0]) == 16
        refused = post(here, "/v1/embeddings", input="x", dimensions=129).json()["error"]
    assert refused["message"] == "dimensions: the model has from 1 to 128. Leave it out."


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/reranking", "/v1/reranking"])
def test_documents_are_ordered_by_their_scores(ranking: tuple[Running, Any], path: str) -> None:
    here, tensors = ranking
    reply = post(here, path, query="What is learning?", documents=DOCUMENTS).json()
    pairs = engine_of(here).pairs_to_ids("What is learning?", DOCUMENTS)
    expected = [score(tensors, ids) for ids in pairs]
    found = {entry["index"]: entry["relevance_score"] for entry in reply["results"]}
    assert [found[i] for i in range(4)] == pytest.approx(expected, abs=0.02)
    assert [entry["index"] for entry in reply["results"]] == sorted(range(4), key=lambda i: -found[i])
    assert reply["usage"]["prompt_tokens"] == reply["usage"]["total_tokens"] == sum(map(len, pairs))


def test_documents_come_in_the_forms_of_several_interfaces(ranking: tuple[Running, Any]) -> None:
    here, _ = ranking
    objects = [{"text": each, "id": 1} for each in DOCUMENTS]
    plain = post(here, "/rerank", query="q", documents=DOCUMENTS).json()["results"]
    whole = post(here, "/v1/rerank", query="q", documents=objects, top_n=2, return_documents=True, model="x").json()
    assert [entry["document"]["text"] for entry in whole["results"]] == [DOCUMENTS[e["index"]] for e in plain[:2]]
    other = post(here, "/rerank", query="q", texts=DOCUMENTS, return_text=True).json()
    assert [(e["index"], e["score"], e["text"]) for e in other] == [
        (e["index"], e["relevance_score"], DOCUMENTS[e["index"]]) for e in plain
    ]
    assert len(post(here, "/rerank", query="q", documents=DOCUMENTS, top_n=99).json()["results"]) == 4


def test_thousands_of_documents_are_scored(ranking: tuple[Running, Any]) -> None:
    reply = post(ranking[0], "/rerank", query="q", documents=[f"text {i}" for i in range(2500)]).json()
    assert sorted(entry["index"] for entry in reply["results"]) == list(range(2500))


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"documents": ["a"]}, "query"),
        ({"query": 5, "documents": ["a"]}, "query"),
        ({"query": "a"}, "documents"),
        ({"query": "a", "documents": None}, "documents"),
        ({"query": "a", "documents": []}, "documents"),
        ({"query": "a", "documents": 123}, "documents"),
        ({"query": "a", "documents": [1, 2]}, "documents.0"),
        ({"query": "a", "documents": [{"title": "b"}]}, "documents.0"),
        ({"query": "a", "documents": ["x " * 600]}, "documents"),
        ({"query": "a", "texts": ["x " * 90_000]}, "texts"),
        *(({"query": "a", "documents": ["b"], "top_n": n}, "top_n") for n in (0, -1, "2", 1.5)),
    ],
)
def test_what_cannot_be_ranked_is_refused_by_its_name(
    ranking: tuple[Running, Any], body: dict[str, Any], param: str
) -> None:
    reply = post(ranking[0], "/rerank", **body)
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["param"] == param


def test_each_kind_of_model_refuses_the_work_of_others(
    encoder: tuple[Running, Any], ranking: tuple[Running, Any]
) -> None:
    asked = {"query": "a", "documents": ["b"]}
    assert post(encoder[0], "/rerank", **asked).status_code == 501
    for path in ("/v1/embeddings", "/embedding", "/api/embed"):
        refused = post(ranking[0], path, input="a")
        assert refused.status_code == 501
        assert "makes no vectors" in refused.text
    chat = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
    for here, kind in ((encoder[0], "an embedding model"), (ranking[0], "a reranking model")):
        for path in ("/v1/chat/completions", "/v1/messages", "/api/chat"):
            refused = post(here, path, **chat)
            assert (refused.status_code, f"This is {kind}" in refused.text) == (400, True)
        assert post(here, "/completion", prompt="hi").status_code == 400


def test_lists_of_models_and_the_page_say_what_it_is_for(
    encoder: tuple[Running, Any], ranking: tuple[Running, Any]
) -> None:
    for (here, _), kind in ((encoder, "embedding"), (ranking, "reranking")):
        asking = here.client()
        assert asking.get("/v1/models").json()["data"][0]["capabilities"] == [kind]
        assert asking.get("/api/v0/models").json()["data"][0]["type"] == "embeddings"
        page = asking.get("/").text
        assert f"{kind} model" in page
        assert "Continue" not in page
    with running(open_plain) as here:
        assert here.client().get("/v1/models").json()["data"][0]["capabilities"] == ["completion"]
