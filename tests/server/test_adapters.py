"""LoRA adapters in the server: by llama.cpp's fields and paths, and by names of their own in every interface."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from app.server.known_models import KnownModels
from app.server.policy import ServerPolicy
from app.server.served_model import MemoryWish, ServedModel
from app.server.served_models import ServedModels
from runtime.engine import Options
from runtime.engine.process.client import EngineProcess
from runtime.models.adapters import Adapter
from runtime.models.registry import Pair
from tests.support.adapters import write_adapter, write_base
from tests.support.serving import LIMITS, Running, running, running_models
from tests.support.waiting import wait_for

ASKED: dict[str, Any] = {"prompt": "w1 w2", "n_predict": 8, "temperature": 0}
OPTIONS = Options(256, (), threads=1, limits=LIMITS, slots=3)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    place = tmp_path_factory.mktemp("adapted")
    adapters = [Adapter(write_adapter(place / f"{name}.gguf", seed)) for seed, name in ((1, "formal"), (2, "Terse"))]
    return Pair(
        "base", write_base(place / "base.gguf"), lora=(adapters[0]._replace(scale=0.5), adapters[1]._replace(scale=0.0))
    )


@pytest.fixture(scope="module")
def here(pair: Pair) -> Iterator[Running]:
    with running(lambda on_progress: EngineProcess(pair, OPTIONS, on_progress), aliases=("base", "own")) as found:
        yield found


@pytest.fixture(autouse=True)
def usual(here: Running) -> None:
    assert here.client().post("/lora-adapters", json=[{"id": 0, "scale": 0.5}]).json() == {"success": True}


def said(here: Running, **more: Any) -> str:
    answer = here.client().post("/completion", json=ASKED | more)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["content"])


def scaled(*scales: float) -> list[dict[str, float]]:
    return [{"id": i, "scale": scale} for i, scale in enumerate(scales)]


def test_a_request_names_adapters_by_id_and_scale(here: Running) -> None:
    texts = [said(here, lora=lora) for lora in ([], scaled(0.5), scaled(1.0), scaled(0.0, 1.0))]
    assert len(set(texts)) == 4
    assert said(here) == texts[1]
    assert said(here, lora=scaled(0.0, 0.0)) == texts[0]
    assert said(here, lora=scaled(1.0)) == texts[2]


def test_the_scales_for_others_can_be_set(here: Running) -> None:
    client, formal = here.client(), said(here)
    found = client.get("/lora-adapters").json()
    assert [(each["id"], Path(each["path"]).name, each["scale"]) for each in found] == [
        (0, "formal.gguf", 0.5), (1, "Terse.gguf", 0.0),
    ]  # fmt: skip
    assert client.post("/lora-adapters", json=[{"id": 1, "scale": 1.0}]).json() == {"success": True}
    assert [each["scale"] for each in client.get("/lora-adapters").json()] == [0.0, 1.0]
    assert said(here) == said(here, lora=scaled(0.0, 1.0)) != formal
    assert client.post("/lora-adapters", json=[]).status_code == 200
    assert said(here) == said(here, lora=[])


def test_each_adapter_has_a_name_of_its_own(here: Running) -> None:
    client = here.client()
    cards = client.get("/v1/models").json()["data"]
    assert [(each["id"], each.get("parent")) for each in cards] == [
        ("base", None), ("base:formal", "base"), ("base:Terse", "base"),
    ]  # fmt: skip
    assert client.get("/v1/models/own:terse").json()["id"] == "base:Terse"
    assert [each["name"] for each in client.get("/api/tags").json()["models"]] == [
        "base:latest", "base:formal", "base:Terse",
    ]  # fmt: skip


def test_every_interface_chooses_by_the_name(here: Running) -> None:
    terse, client = said(here, lora=scaled(0.0, 1.0)), here.client()
    assert said(here, model="base:terse") == said(here, model="anything:Terse") == terse
    assert said(here, model="base:formal") == said(here, lora=scaled(0.5))
    assert said(here, model="own") == said(here, model="qwen:7b") == said(here)
    options = {"num_predict": 8, "temperature": 0}
    body = {"model": "base:terse", "prompt": "w1 w2", "raw": True, "stream": False, "options": options}
    assert client.post("/api/generate", json=body).json()["response"] == terse
    chat = {
        "model": "base:terse",
        "messages": [{"role": "user", "content": "w1 w2"}],
        "max_tokens": 8,
        "temperature": 0,
    }
    told = client.post("/v1/chat/completions", json=chat).json()["choices"][0]["message"]["content"]
    assert told == client.post("/v1/messages", json=chat).json()["content"][0]["text"]
    by_id = chat | {"model": "base", "lora": scaled(0.0, 1.0)}
    assert told == client.post("/v1/chat/completions", json=by_id).json()["choices"][0]["message"]["content"]
    assert (
        told
        != client.post("/v1/chat/completions", json=chat | {"model": "base"}).json()["choices"][0]["message"]["content"]
    )


def test_a_reply_names_the_adapter_that_was_asked_for_by_name(here: Running) -> None:
    client, chat = here.client(), {"messages": [{"role": "user", "content": "w1"}], "max_tokens": 2}
    asked: list[tuple[str, dict[str, Any]]] = [
        ("/completion", {"prompt": "w1", "n_predict": 2}),
        ("/v1/completions", {"prompt": "w1", "max_tokens": 2}),
        ("/v1/chat/completions", chat),
        ("/v1/messages", chat),
        ("/v1/responses", {"input": "w1", "max_output_tokens": 2}),
    ]
    for path, body in asked:
        for model, name in (("own:TERSE", "base:Terse"), ("base", "base"), ("any", "base")):
            assert client.post(path, json=body | {"model": model}).json()["model"] == name, path
        by_id = client.post(path, json=body | {"model": "base:terse", "lora": scaled(1.0)})
        assert by_id.json()["model"] == "base"
    streamed = client.post("/v1/chat/completions", json=chat | {"model": "base:terse", "stream": True}).text
    assert '"model":"base:Terse"' in streamed.replace(" ", "")


@pytest.mark.parametrize(
    ("more", "status", "text"),
    [
        ({"lora": scaled(1.0, 1.0, 1.0)}, 400, "There is no adapter 2: base has those from 0 to 1."),
        ({"lora": [{"id": 0, "scale": "much"}]}, 400, "lora.0.scale must be a valid number."),
        ({"lora": [{"id": -1, "scale": 1}]}, 400, "lora.0.id must be greater than or equal to 0."),
        ({"lora": [{"id": 0}]}, 400, "lora.0.scale is missing: send it."),
        ({"model": "base:formall"}, 404, "base has no adapter 'formall'. It has formal, Terse."),
    ],
)
def test_what_cannot_be_is_refused_by_name(here: Running, more: dict[str, Any], status: int, text: str) -> None:
    answer = here.client().post("/completion", json=ASKED | more)
    assert (answer.status_code, answer.json()["error"]["message"]) == (status, text)


def test_wrong_scales_for_others_change_nothing(here: Running) -> None:
    client = here.client()
    for wrong in ([{"id": 9, "scale": 1}], {"id": 0}, [{"id": 0, "scale": None}]):
        assert client.post("/lora-adapters", json=wrong).status_code == 400
    assert [each["scale"] for each in client.get("/lora-adapters").json()] == [0.5, 0.0]


def test_a_reply_goes_on_with_its_adapter_where_the_process_is_lost(here: Running) -> None:
    long = ASKED | {"n_predict": 100, "temperature": 0.8, "seed": 4, "model": "base:terse", "ignore_eos": True}
    expected, text, engine = said(here, **long), "", here.server.served.engine
    assert isinstance(engine, EngineProcess)
    lost = engine.kept.current
    with here.client().stream("POST", "/completion", json=long | {"stream": True}) as answer:
        for line in answer.iter_lines():
            text += json.loads(line[6:])["content"] if line.startswith("data: {") else ""
            if engine.kept.current is lost and lost.is_alive:
                os.kill(lost._process.pid, signal.SIGKILL)
    assert text == expected
    assert engine.kept.current is not lost


def test_requests_at_once_say_what_each_says_alone(here: Running) -> None:
    """As llama.cpp's own test of adapters by request."""
    scales = (0.0, 0.0, 0.3, 0.7, 1.0, 1.0)
    wishes = [{"lora": scaled(scale), "seed": 42, "cache_prompt": False} for scale in scales]
    alone = [said(here, **wish) for wish in wishes]
    with ThreadPoolExecutor(len(wishes)) as pool:
        assert [*pool.map(lambda wish: said(here, **wish), wishes)] == alone
    assert len(set(alone)) == 4


def test_a_saved_conversation_is_restored_with_its_adapters(here: Running, tmp_path: Path) -> None:
    client, body = here.client(), {"filename": "a.bin"}
    here.server.app.state.slot_folder = tmp_path
    long = {"prompt": "w1 w2 " * 20, "lora": scaled(0.0, 1.0)}
    text = said(here, **long)
    assert client.post("/slots/0?action=save", json=body).status_code == 200
    for _ in range(9):
        client.post("/slots/0?action=erase", json=body)
    assert client.post("/slots/0?action=restore", json=body).status_code == 200
    answers = [client.post("/completion", json=ASKED | each).json() for each in (long | {"lora": []}, long)]
    assert answers[0]["timings"]["cache_n"] == 0 < answers[1]["timings"]["cache_n"]
    assert answers[1]["content"] == text


def test_of_several_models_each_has_its_own(pair: Pair) -> None:
    def opened(pair: Pair, wish: MemoryWish, on_progress: Callable[[str, float], bool]) -> EngineProcess:
        return EngineProcess(pair, OPTIONS, on_progress)

    models = [ServedModel(["base", "base.gguf"], pair), ServedModel(["plain"], Pair("plain", pair.target))]
    with running_models(ServedModels(KnownModels(models), opened, ServerPolicy())) as several:
        terse = said(several, model="base:Terse")
        assert terse == said(several, model="base.gguf:terse", stream=False)
        assert terse != said(several, model="plain")
        wrong = several.client().post("/completion", json=ASKED | {"model": "plain:terse"})
        assert wrong.status_code == 404
        answer = several.client().post("/lora-adapters?model=base", json=[{"id": 1, "scale": 1}])
        assert answer.json() == {"success": True}
        assert said(several, model="base") == terse
        client = several.client()
        assert client.post("/models/unload", json={"model": "base"}).status_code == 200
        wait_for(lambda: models[0].served is None)
        assert said(several, model="base") == terse
        assert [each["scale"] for each in client.get("/lora-adapters?model=base").json()] == [0.0, 1.0]
        assert several.client().post("/lora-adapters?model=plain", json=[{"id": 0, "scale": 1}]).status_code == 400
        assert several.client().get("/lora-adapters?model=plain").json() == []
        listed = several.client().get("/v1/models").json()
        assert [each["id"] for each in listed["data"]] == ["base", "base:formal", "base:Terse", "plain"]
        assert [each["name"] for each in listed["models"]] == ["base", "base:formal", "base:Terse", "plain"]
