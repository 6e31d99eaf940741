"""Small planted models on a device; everything is skipped with a sentence where llama.cpp finds none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.instruments.planted import plant
from bench.instruments.shapes import TINY
from runtime.backends import library
from runtime.engine import Options
from runtime.engine.loaded import LoadedEngine
from runtime.models.registry import Pair

Open = Callable[..., LoadedEngine]
WHERE = "llama.cpp finds no device: build libraries with `python -m bench.build vulkan FOLDER` (see CONTRIBUTING.md)"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All that is in this folder needs a device."""
    here = [item for item in items if Path(__file__).parent in item.path.parents]
    for item in here:
        item.add_marker(pytest.mark.device)
    if here and not library.has_gpu():
        for item in here:
            item.add_marker(pytest.mark.skip(reason=WHERE))


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Passes on lavapipe take hundreds of times as long as a processor's, so the models are as small as can be."""
    return plant(tmp_path_factory.mktemp("planted"), TINY, TINY, 0.8, words=48, n_ctx=256)


@pytest.fixture
def opened(pair: Pair) -> Iterator[Open]:
    """Opens the pair, or another; closed at the end."""
    engines: list[LoadedEngine] = []

    def open_with(other: Pair | None = None, **options: object) -> LoadedEngine:
        usual: dict[str, object] = {"threads": 1, "n_ctx": 256, "max_k": 3}
        engines.append(LoadedEngine(other or pair, Options(**usual | options)))  # type: ignore[arg-type]
        return engines[-1]

    yield open_with
    for engine in engines:
        engine.close()
