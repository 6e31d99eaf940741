"""A public embedding model through the real clients, against its original weights and tokenizer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import ollama
import openai
import pytest

from bench.instruments.weights import FetchError
from runtime.engine.process.client import EngineProcess
from runtime.models.registry import Pair
from tests.real.minilm import EPSILON, LONGEST, N_HEADS, tensors_of, unpacked, write_minilm
from tests.support.encoders import Array, WordPieces, vector
from tests.support.serving import Running, running
from tests.support.waiting import PATIENCE

QUESTION, NEAR, FAR = "How do I bake bread?", "A recipe for a loaf of bread", "The engine of a car is broken"
TEXTS = [
    QUESTION, NEAR, FAR, "A", "Why? Because: it's (almost) free, isn't it...", "unbelievably antidisestablishmentarian",
    "The bridge was closed for repairs in the spring, so everybody took the ferry. " * 6,
    "The bridge was closed for repairs in the spring, so everybody took the ferry. " * 26,
]  # fmt: skip


class Original:
    """The published model, computed by NumPy."""

    def __init__(self, folder: Path) -> None:
        self.tensors, self._words = tensors_of(folder), WordPieces(folder / "tokenizer.json")

    def encode(self, text: str) -> list[int]:
        return self._words.encode(text)

    def vector(self, text: str) -> Array:
        return vector(self.tensors, self.encode(text), N_HEADS, EPSILON)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Original:
    try:
        return Original(unpacked(tmp_path_factory.mktemp("minilm")))
    except FetchError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def here(original: Original, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = unpacked(tmp_path_factory.mktemp("served"))
    pair = Pair("minilm", write_minilm(folder, original.tensors), context=0)
    with running(lambda on_progress: EngineProcess(pair, None, on_progress)) as found:
        yield found


@pytest.fixture(scope="module")
def client(here: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{here.url}/v1", api_key="none", max_retries=0, timeout=PATIENCE) as found:
        yield found


def test_texts_have_the_tokens_of_the_original(here: Running, original: Original) -> None:
    assert here.server.served.engine.texts_to_ids(TEXTS) == [original.encode(text) for text in TEXTS]


def test_vectors_are_those_of_the_original_weights(client: openai.OpenAI, original: Original) -> None:
    found = [np.array(entry.embedding) for entry in client.embeddings.create(model="any", input=TEXTS).data]
    cosines = [float(row @ original.vector(text)) for row, text in zip(found, TEXTS, strict=True)]
    assert min(cosines) >= 0.9999
    assert found[0] @ found[1] == pytest.approx(0.727, abs=5e-4)
    assert found[0] @ found[2] == pytest.approx(0.063, abs=5e-4)


def test_ollamas_client_gets_the_same(here: Running, original: Original) -> None:
    for row, text in zip(ollama.Client(here.url).embed("any", TEXTS).embeddings, TEXTS, strict=True):
        assert float(np.array(row) @ original.vector(text)) >= 0.9999


def test_a_long_text_is_an_error_for_one_interface_and_cut_for_the_other(
    here: Running, client: openai.OpenAI, original: Original
) -> None:
    long = "bread and butter " * 400
    with pytest.raises(openai.BadRequestError, match="maximum context length is 512 tokens"):
        client.embeddings.create(model="any", input=long)
    ids = original.encode(long)
    cut = [*ids[: LONGEST - 1], ids[-1]]
    (row,) = ollama.Client(here.url).embed("any", long).embeddings
    assert float(np.array(row) @ vector(original.tensors, cut, N_HEADS, EPSILON)) >= 0.9999
