"""A server with several models: each answers to its name, in every interface, and is loaded for it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ollama
import openai
import psutil
import pytest

from app.server.known_models import KnownModels
from app.server.policy import ServerPolicy
from app.server.served_model import MemoryWish, ServedModel
from app.server.served_models import ServedModels
from runtime.core.errors import ModelError
from runtime.engine import Options
from runtime.engine.process.client import EngineProcess
from runtime.models.registry import Pair, load_registry
from tests.support.serving import LIMITS, Running, running_models
from tests.support.waiting import PATIENCE, wait_for

HERE = Path(__file__).parents[2]
ASKED: dict[str, Any] = {"prompt": "import os", "max_tokens": 6, "seed": 1, "temperature": 0.5}


def opened(pair: Pair, wish: MemoryWish, on_progress: Callable[[str, float], bool]) -> EngineProcess:
    if pair.name == "broken":
        raise ModelError("its file is damaged. Fetch it again.")
    options = Options(threads=1, limits=LIMITS, drafters=(), reserved=wish.reserved, is_whole=wish.is_whole)
    return EngineProcess(pair, options, on_progress)


@pytest.fixture(scope="module")
def here() -> Iterator[Running]:
    demo = load_registry()["demo"]
    files = {"big": HERE / "demo/target.gguf", "small": HERE / "demo/draft.gguf", "broken": HERE / "demo/draft.gguf"}
    models = [ServedModel([name, f"{name}.gguf"], Pair(name, file, context=512)) for name, file in files.items()]
    models[0].pair = Pair("big", demo.target, context=512, description=demo.description)
    with running_models(ServedModels(KnownModels(models), opened, ServerPolicy(shows_slots=True))) as found:
        yield found


def states(here: Running) -> dict[str, str]:
    return {each["id"]: each["status"]["value"] for each in here.client().get("/v1/models").json()["data"]}


def text_of(here: Running, model: str, **more: Any) -> str:
    answer = here.client().post("/v1/completions", json=ASKED | {"model": model} | more)
    assert answer.status_code == 200, answer.text
    assert answer.json()["model"] == model.removesuffix(".gguf").lower()
    return str(answer.json()["choices"][0]["text"])


def test_before_any_is_loaded_it_says_so(here: Running) -> None:
    client = here.client()
    assert states(here) == {"big": "unloaded", "small": "unloaded", "broken": "unloaded"}
    assert client.get("/health").json() == {"status": "ok", "model": ""}
    assert client.get("/props").json()["role"] == "router"
    assert "No model is loaded" in client.get("/slots").json()["error"]["message"]
    assert "No model is loaded" in client.get("/").text
    assert client.get("/api/ps").json() == {"models": []}


def test_each_answers_to_its_names_and_none_to_others(here: Running) -> None:
    big, small = text_of(here, "big"), text_of(here, "small")
    assert big != small
    assert text_of(here, "BIG.gguf") == big
    assert text_of(here, "small.gguf") == small
    assert states(here) == {"big": "loaded", "small": "loaded", "broken": "unloaded"}
    refused = here.client().post("/v1/completions", json=ASKED | {"model": "smaller"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "model_not_found")
    assert here.client().post("/v1/completions", json=ASKED | {"model": 5}).status_code == 400


def test_without_a_name_it_is_the_one_used_last(here: Running) -> None:
    small = text_of(here, "small")
    body = here.client().post("/v1/completions", json=ASKED).json()
    assert (body["model"], body["choices"][0]["text"]) == ("small", small)
    assert here.client().get("/health").json()["model"] == "small"
    assert here.client().get("/props").json()["model_alias"] == "small"
    assert here.client().get("/props?model=big").json()["model_alias"] == "big"


@pytest.mark.parametrize("stream", [False, True])
def test_a_model_that_cannot_be_loaded_says_why(here: Running, stream: bool) -> None:
    refused = here.client().post("/v1/completions", json=ASKED | {"model": "broken", "stream": stream})
    assert refused.status_code == 500
    assert refused.json()["error"]["message"] == (
        "The model 'broken' cannot be loaded: its file is damaged. Fetch it again."
    )
    card = here.client().get("/v1/models/broken").json()
    assert card["status"] == {"value": "unloaded", "failed": True, "error": refused.json()["error"]["message"]}
    assert "its file is damaged" in here.client().get("/").text


def test_models_are_loaded_and_unloaded_by_hand(here: Running) -> None:
    client = here.client()
    text = text_of(here, "small")
    assert client.post("/models/unload", json={"model": "small"}).json() == {"success": True}
    wait_for(lambda: states(here)["small"] == "unloaded")
    assert client.post("/models/load", json={"model": "small"}).json() == {"success": True}
    wait_for(lambda: states(here)["small"] == "loaded")
    assert text_of(here, "small") == text
    assert client.post("/models/unload", json={"model": "none"}).status_code == 404


def test_a_model_that_answers_leaves_after_that(here: Running) -> None:
    client, other = here.client(), here.client()
    with client.stream("POST", "/completion", json={"prompt": "x", "n_predict": 60, "ignore_eos": True, "stream": True,
                                                    "model": "big"}) as reply:  # fmt: skip
        lines = reply.iter_lines()
        next(lines)
        assert other.post("/models/unload", json={"model": "big"}).json() == {"success": True}
        last = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")][-1]
    assert last["tokens_predicted"] == 60
    wait_for(lambda: states(here)["big"] == "unloaded")


def test_openais_client_chooses_by_name(here: Running) -> None:
    client = openai.OpenAI(base_url=f"{here.url}/v1", api_key="none", timeout=PATIENCE, max_retries=0)
    assert [each.id for each in client.models.list()] == ["big", "small", "broken"]
    texts = {
        name: "".join(part.choices[0].text for part in client.completions.create(model=name, stream=True, **ASKED))
        for name in ("big", "small")
    }
    assert texts == {name: text_of(here, name) for name in texts}
    with pytest.raises(openai.NotFoundError, match=r"There is no model 'gpt-4o' here\. Served: big, small, broken\."):
        client.completions.create(model="gpt-4o", **ASKED)


def test_ollamas_client_sees_them_and_lets_them_go(here: Running) -> None:
    client = ollama.Client(here.url, timeout=PATIENCE)
    assert [each.model for each in client.list().models] == ["big:latest", "small:latest", "broken:latest"]
    assert client.show("small").modelinfo
    client.generate("small:latest", "import", options={"num_predict": 2}, keep_alive="1h")
    running = {each.model: each.expires_at for each in client.ps().models}
    assert running["small:latest"] is not None
    assert running["small:latest"].year < 9999
    client.generate("small", "", keep_alive=10**30)  # no date: for ever
    assert {each.model: each.expires_at.year for each in client.ps().models if each.expires_at}["small:latest"] == 9999
    assert client.generate("small", "", keep_alive=0).done_reason == "unload"
    wait_for(lambda: states(here)["small"] == "unloaded")


def test_who_only_lets_a_model_go_does_not_load_it(here: Running) -> None:
    text_of(here, "small")
    body = {"model": "small", "keep_alive": 0}
    assert here.client().post("/api/chat", json=body | {"messages": []}).json()["done_reason"] == "unload"
    wait_for(lambda: states(here)["small"] == "unloaded")
    model = here.server.models.models[1]
    used_at = model.used_at
    assert here.client().post("/api/generate", json=body).json()["done_reason"] == "unload"
    assert here.client().post("/api/embed", json=body).json() == {"model": "small", "embeddings": []}
    assert (model.used_at, states(here)["small"]) == (used_at, "unloaded")


def test_how_long_a_request_keeps_a_model_ends_with_its_stay(here: Running) -> None:
    here.client().post("/api/generate", json={"model": "small", "prompt": "x", "keep_alive": 0, "stream": False})
    wait_for(lambda: states(here)["small"] == "unloaded")
    text_of(here, "small")
    assert here.server.models.models[1].keep_alive is None
    assert states(here)["small"] == "loaded"


def test_a_crash_of_one_is_a_pause_of_its_replies_alone(here: Running) -> None:
    text, other = text_of(here, "big", max_tokens=40), text_of(here, "small")
    served = here.server.models.models[0].served
    assert served is not None
    pid = served.engine.kept.current._process.pid  # type: ignore[attr-defined]
    os.kill(pid, signal.SIGKILL)
    assert text_of(here, "small") == other
    assert text_of(here, "big", max_tokens=40) == text
    assert served.engine.kept.current._process.pid != pid  # type: ignore[attr-defined]


def test_metrics_count_the_replies_of_all(here: Running) -> None:
    def n_replies() -> float:
        lines = here.client().get("/metrics").text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith("slipstream_replies_total"))

    before = n_replies()
    text_of(here, "big"), text_of(here, "small")
    assert n_replies() == before + 2
    text = here.client().get("/metrics").text
    assert 'slipstream_model{model="small",state="loaded"} 1.0' in text
    assert 'slipstream_model{model="broken",state="failed"} 1.0' in text


def test_at_its_end_no_process_is_left() -> None:
    models = [ServedModel([name], Pair(name, HERE / "demo/draft.gguf", context=128)) for name in ("a", "b")]
    with running_models(ServedModels(KnownModels(models), opened, ServerPolicy())) as found:
        for name in ("a", "b"):
            found.client().post("/tokenize", json={"content": "x", "model": name})
        engines = [each.served.engine for each in models if each.served]
        pids = [engine.kept.current._process.pid for engine in engines]  # type: ignore[attr-defined]
        assert len(pids) == 2
    assert not any(map(psutil.pid_exists, pids))
