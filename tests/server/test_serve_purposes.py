"""A request that names no model goes to one that can answer it, whichever was used last."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.server.known_models import KnownModels
from app.server.policy import ServerPolicy
from app.server.served_model import ServedModel
from app.server.served_models import ServedModels
from runtime.engine import Options
from runtime.engine.pooled import PooledEngine
from runtime.engine.process.client import EngineProcess
from runtime.models.registry import Pair
from tests.support.coder import write_coder
from tests.support.encoders import write_encoder
from tests.support.serving import LIMITS, Running, events, running_models

HERE = Path(__file__).parents[2]
TEXT = {"prompt": "import os", "max_tokens": 2, "seed": 1}
CHAT = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2, "seed": 1}
RANKS = {"query": "learning", "documents": ["One machine.", "Paris"]}
EMBEDDED = {"input": "One machine."}
GAP = {"input_prefix": "w1 w2", "input_suffix": "w3", "n_predict": 2, "seed": 1}
WRITERS = {"writer", "coder"}
# What Continue sends to its three models, with seeds: a chat, a gap by the coder's own marks, and pieces of files
CHATTING = {
    "model": "writer", "messages": [{"role": "user", "content": [{"type": "text", "text": "What is os.path?"}]}],
    "max_tokens": 60, "temperature": 0.5, "seed": 3, "stream": True, "stream_options": {"include_usage": True},
}  # fmt: skip
COMPLETING = {
    "model": "coder", "prompt": "<|fim_prefix|>w1 w2<|fim_suffix|>w3<|fim_middle|>", "max_tokens": 12,
    "temperature": 0.01, "seed": 3, "stop": ["<|fim_prefix|>", "<|file_sep|>", "/src/", "```"], "stream": True,
}  # fmt: skip
INDEXING = {"model": "encoder", "input": ["One machine.", "Paris", "What is it?"], "encoding_format": "base64"}


def opened(pair: Pair, wish: Any, on_progress: Any) -> Any:
    options = Options(threads=1, limits=LIMITS, drafters=())
    if pair.name in WRITERS:
        return EngineProcess(pair, options, on_progress)
    return PooledEngine(pair, options, on_progress)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("models")
    files = {
        "encoder": write_encoder(folder)[0],
        "reranker": write_encoder(folder, ranks=True)[0],
        "writer": HERE / "demo/draft.gguf",
        "coder": write_coder(folder / "coder.gguf"),
    }
    models = [
        ServedModel([name], Pair(name, file, context=256 if name in WRITERS else 0)) for name, file in files.items()
    ]
    with running_models(ServedModels(KnownModels(models), opened, ServerPolicy())) as found:
        yield found


def answered(here: Running, path: str, body: dict[str, Any]) -> str:
    answer = here.client().post(path, json=body)
    assert answer.status_code == 200, answer.text
    return str(answer.json().get("model", ""))


def test_each_kind_of_request_finds_its_model(here: Running) -> None:
    for _ in range(2):  # before any is loaded, and after others were used
        assert answered(here, "/v1/chat/completions", CHAT) == "writer"
        assert answered(here, "/v1/embeddings", EMBEDDED) == "encoder"
        assert answered(here, "/v1/rerank", RANKS) == "reranker"
        assert answered(here, "/v1/completions", TEXT) == "writer"
        assert answered(here, "/api/embed", EMBEDDED) == "encoder"
        assert here.client().get("/props").json()["model_alias"] == "writer"
        assert answered(here, "/v1/messages", CHAT) == "writer"
    assert answered(here, "/infill", GAP) == "coder"
    assert answered(here, "/v1/completions", TEXT) == "coder"


def test_a_model_that_is_named_says_what_it_cannot_do(here: Running) -> None:
    refused = here.client().post("/v1/rerank", json=RANKS | {"model": "encoder"})
    assert refused.status_code == 501
    assert "Reranking is not supported by the served model" in refused.text


def streamed(here: Running, path: str, body: dict[str, Any]) -> tuple[set[str], str]:
    """The models that a stream names, and its text."""
    found = events(here.client().post(path, json=body))
    choices = [choice for event in found for choice in event["choices"]]
    text = "".join(each["text"] if "text" in each else each["delta"].get("content") or "" for each in choices)
    return {event["model"] for event in found}, text


def test_an_editors_three_models_answer_at_once_what_each_says_alone(here: Running) -> None:
    def chat(turn: int) -> Any:
        return streamed(here, "/v1/chat/completions", CHATTING)

    def complete(turn: int) -> Any:
        return streamed(here, "/v1/completions", COMPLETING)

    def index(turn: int) -> Any:
        found = here.client().post("/v1/embeddings", json=INDEXING).json()
        assert found["model"] == "encoder"
        return np.frombuffer(b"".join(base64.b64decode(each["embedding"]) for each in found["data"]), np.float32)

    texts, vectors = [chat(0), complete(0)], index(0)
    assert [models for models, _ in texts] == [{"writer"}, {"coder"}]
    with ThreadPoolExecutor(6) as clients:
        chats, completions, indexed = (clients.map(work, range(8)) for work in (chat, complete, index))
        assert [*chats] == texts[:1] * 8
        assert [*completions] == texts[1:] * 8
        assert np.allclose([*indexed], vectors, atol=1e-3)  # rounded by the texts that share a pass
