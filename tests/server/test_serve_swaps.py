"""Forty swaps of models where one fits, with clients that leave and processes that are killed: no text changes."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from app.server.known_models import KnownModels
from app.server.policy import ServerPolicy
from app.server.served_model import MemoryWish, ServedModel
from app.server.served_models import ServedModels
from runtime.core.errors import NoMemoryError
from runtime.engine import Options
from runtime.engine.process.client import EngineProcess
from runtime.models.registry import Pair
from tests.support.serving import LIMITS, Running, running_models
from tests.support.waiting import PATIENCE

HERE = Path(__file__).parents[2]
FILES = {"big": "demo/target.gguf", "small": "demo/draft.gguf", "twin": "demo/target.gguf"}
N_SWAPS, N_CLIENTS = 40, 3

pytestmark = pytest.mark.slow


class OnePlace:
    """Opens models as memory for a single one would allow."""

    def __init__(self) -> None:
        self.open = list[EngineProcess]()
        self.n_opened = 0

    def __call__(self, pair: Pair, wish: MemoryWish, on_progress: Callable[[str, float], bool]) -> Any:
        self.open = [each for each in self.open if not each.kept.is_closed]
        if self.open:
            raise NoMemoryError(f"{pair.name} does not fit. Close other programs.")
        self.n_opened += 1
        self.open.append(engine := EngineProcess(pair, Options(threads=1, limits=LIMITS), on_progress))
        return engine


@contextmanager
def served(place: OnePlace) -> Iterator[Running]:
    models = [ServedModel([name], Pair(name, HERE / file, context=512)) for name, file in FILES.items()]
    with running_models(ServedModels(KnownModels(models), place, ServerPolicy())) as found:
        yield found


def body(name: str, seed: int) -> dict[str, Any]:
    return {"model": name, "prompt": f"import os  # {seed}", "max_tokens": 24, "seed": seed, "temperature": 0.7}


def text(client: httpx2.Client, name: str, seed: int) -> str:
    answer = client.post("/v1/completions", json=body(name, seed))
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["text"])


def test_forty_swaps_with_cancels_and_kills_change_no_text() -> None:
    place, order = OnePlace(), random.Random(7)
    before = {each.pid for each in psutil.Process().children(recursive=True)}
    with served(place) as here:
        client = here.client()
        alone = {(name, seed): text(client, name, seed) for name in FILES for seed in (1, 2)}
        turns = [(order.choice([*alone]), order.random()) for _ in range(N_SWAPS)]
        done = threading.Event()

        def kill() -> None:
            """Kills each engine's first process: who loses one again and again is told that it cannot be run."""
            killed = list[EngineProcess]()
            while not done.wait(0.9):
                for engine in [each for each in place.open if each not in killed]:
                    killed.append(engine)
                    with suppress(ProcessLookupError):
                        os.kill(engine.kept.current._process.pid, signal.SIGKILL)

        def ask(turn: tuple[tuple[str, int], float]) -> None:
            (name, seed), chance = turn
            with httpx2.Client(base_url=here.url, timeout=PATIENCE) as mine:
                if chance < 0.25:  # the client leaves
                    with suppress(httpx2.TimeoutException):
                        mine.post("/v1/completions", json=body(name, seed) | {"max_tokens": 400}, timeout=chance)
                else:
                    assert text(mine, name, seed) == alone[name, seed]

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            with ThreadPoolExecutor(N_CLIENTS) as clients:
                for _ in clients.map(ask, turns):
                    pass
        finally:
            done.set()
            killer.join()
    assert place.n_opened > N_SWAPS / 4
    assert {each.pid for each in psutil.Process().children(recursive=True)} <= before
