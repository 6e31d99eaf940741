"""Embeddings through the real client: vectors of length 1 that tell texts apart, in both encodings."""

from __future__ import annotations

import math
from collections.abc import Iterator

import httpx2
import openai
import pytest

from tests.support.serving import Running
from tests.support.waiting import PATIENCE

TEXTS = ["os.path.join joins paths", "os.path.join joins path names", "Rain falls in Spain"]


@pytest.fixture(scope="module")
def client(here: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{here.url}/v1", api_key="none", max_retries=0, timeout=PATIENCE) as found:
        yield found


def cosine(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def test_texts_become_vectors_that_are_nearer_the_more_they_say_the_same(client: openai.OpenAI) -> None:
    reply = client.embeddings.create(model="demo", input=TEXTS)  # the client asks for base64
    near, nearer, far = (entry.embedding for entry in reply.data)
    assert [entry.index for entry in reply.data] == [0, 1, 2]
    assert all(math.isclose(cosine(vector, vector), 1, abs_tol=1e-5) for vector in (near, nearer, far))
    assert cosine(near, nearer) > cosine(near, far)
    assert reply.usage.prompt_tokens == reply.usage.total_tokens > 3


def test_both_encodings_and_ids_say_the_same(client: openai.OpenAI, here: Running) -> None:
    packed = client.embeddings.create(model="demo", input=TEXTS[0]).data[0].embedding
    plain = client.embeddings.create(model="demo", input=TEXTS[0], encoding_format="float").data[0].embedding
    ids = here.client().post("/tokenize", json={"content": TEXTS[0], "add_special": True}).json()["tokens"]
    assert packed == plain == client.embeddings.create(model="demo", input=ids).data[0].embedding


def test_a_text_longer_than_a_batch_is_one_vector(client: openai.OpenAI) -> None:
    vector = client.embeddings.create(model="demo", input="word " * 300).data[0].embedding
    assert math.isclose(cosine(vector, vector), 1, abs_tol=1e-5)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": []}, "input"),
        ({"input": "word " * 3000}, "input"),
        ({"input": [[99_999]]}, "input"),
        ({"input": "x", "dimensions": 3}, "dimensions"),
        ({"input": "x", "encoding_format": "hex"}, "encoding_format"),
        ({}, "input"),
        ({"input": {"prompt_string": "<__media__>", "multimodal_data": ["AA=="]}}, "input.0"),
    ],
)
def test_what_cannot_be_embedded_is_refused_by_its_name(here: Running, body: dict[str, object], param: str) -> None:
    reply = here.client().post("/v1/embeddings", json=body)
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["param"] == param


def test_the_models_state_is_told_as_events(here: Running) -> None:
    with httpx2.Client(base_url=here.url, timeout=PATIENCE) as client, client.stream("GET", "/models/sse") as stream:
        assert next(stream.iter_lines()) == 'data: {"model":"demo","event":"model_status","data":{"status":"loaded"}}'
