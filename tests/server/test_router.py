"""What llama.cpp's router can be told: how many models are loaded at most, and that requests load none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.server.errors import ApiError
from app.server.known_models import KnownModels
from app.server.policy import ServerPolicy
from app.server.served_model import MemoryWish, ServedModel
from app.server.served_models import ServedModels
from runtime.engine import Options
from runtime.engine.process.client import EngineProcess
from runtime.models.registry import Pair
from tests.support.machine import Machine, models_on, run, use, using
from tests.support.serving import LIMITS, Running, running_models
from tests.support.waiting import wait_for

HERE = Path(__file__).parents[2]
ASKED: dict[str, Any] = {"prompt": "import os", "max_tokens": 2, "seed": 1, "model": "small"}


def test_no_more_models_are_loaded_than_the_owner_wants() -> None:
    async def work() -> None:
        machine = Machine(9)
        models = models_on(machine, "a", "b", "c")
        models.policy = ServerPolicy(max_models=2)
        for name in ("a", "b", "a", "c"):
            await use(models, name)
        assert machine.names == ["a", "c"]

    run(work())


async def with_room_for_one() -> tuple[Machine, ServedModels]:
    """Two models, of which the first is loaded and no other may be beside it."""
    machine = Machine(9)
    models = models_on(machine, "a", "b")
    models.policy = ServerPolicy(max_models=1)
    await use(models, "a")
    return machine, models


def test_one_that_answers_is_waited_for_where_no_more_may_be_loaded() -> None:
    async def work() -> None:
        machine, models = await with_room_for_one()
        with using(models.models[0]):
            waiting = asyncio.ensure_future(use(models, "b"))
            await asyncio.sleep(0.05)
            assert machine.names == ["a"]
        await waiting
        assert machine.names == ["b"]

    run(work())


def test_who_leaves_while_waiting_costs_no_model_its_place() -> None:
    async def work() -> None:
        machine, models = await with_room_for_one()
        with using(models.models[0]):
            waiting = asyncio.ensure_future(use(models, "b"))
            await asyncio.sleep(0.05)
            waiting.cancel()
            await asyncio.wait({waiting})
        await asyncio.sleep(0.05)
        assert models.models[0].is_loaded
        assert machine.names == ["a"]

    run(work())


def test_where_all_that_are_loaded_stay_no_other_one_is() -> None:
    async def work() -> None:
        machine = Machine(9)
        models = models_on(machine, "a", "b")
        models.policy = ServerPolicy(max_models=1)
        models.models[0].stays = True
        await use(models, "a")
        with pytest.raises(ApiError, match="as many as `--models-max` allows"):
            await use(models, "b")

    run(work())


def opened(pair: Pair, wish: MemoryWish, on_progress: Callable[[str, float], bool]) -> EngineProcess:
    return EngineProcess(pair, Options(threads=1, limits=LIMITS, drafters=()), on_progress)


@pytest.fixture(scope="module")
def here() -> Iterator[Running]:
    pair = Pair("small", HERE / "demo/draft.gguf", context=512)
    models = [ServedModel([name], pair) for name in ("small", "other")]
    policy = ServerPolicy(max_models=3, loads_models=False)
    with running_models(ServedModels(KnownModels(models), opened, policy)) as found:
        yield found


def state(here: Running) -> str:
    return str(here.client().get("/v1/models/small").json()["status"]["value"])


def test_the_router_says_what_it_was_told(here: Running) -> None:
    found = here.client().get("/props").json()
    assert (found["role"], found["max_instances"], found["models_autoload"]) == ("router", 3, False)


def test_models_are_loaded_only_when_that_is_asked_for(here: Running) -> None:
    client = here.client()
    refused = client.post("/v1/completions", json=ASKED)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "model_not_loaded")
    assert "POST /models/load" in refused.json()["error"]["message"]
    assert client.post("/v1/completions?autoload=false", json=ASKED).status_code == 400
    assert state(here) == "unloaded"
    assert client.post("/models/load", json={"model": "small"}).json() == {"success": True}
    wait_for(lambda: state(here) == "loaded")
    assert client.post("/v1/completions", json=ASKED).status_code == 200
    client.post("/models/unload", json={"model": "small"})
    wait_for(lambda: state(here) == "unloaded")
    assert client.post("/api/generate", json={"model": "small", "keep_alive": 0}).status_code == 200
    assert state(here) == "unloaded"
    assert client.post("/v1/completions?autoload=true", json=ASKED).status_code == 200
