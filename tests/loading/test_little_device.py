"""A GPU that has less memory than it says: less and less goes there, and in the end nothing."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.backends import library
from runtime.core.errors import NoMemoryError
from runtime.core.pressure import MIB, Thresholds
from runtime.engine import Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.loading import open_pair
from runtime.loading.footprint import ALL_LAYERS
from runtime.models.registry import load_registry

DEMO = load_registry()["demo"]
NOTHING_SPARED = Thresholds(tight_device_bytes=0, critical_device_bytes=0)
OPTIONS = Options(threads=1, n_ctx=512, drafters=(), memory=NOTHING_SPARED)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The layers that were to go to a device of which the library believes to have 40 MiB, each time that failed."""
    found, is_left, load = list[int](), False, open_pair.load

    def leave() -> None:
        nonlocal is_left
        is_left = True

    def unlucky(*args: Any, **named: Any) -> Any:
        if not is_left:
            found.append(args[4])
            raise NoMemoryError("unable to allocate Vulkan0 buffer")
        return load(*args, **named)

    monkeypatch.setattr(library, "has_gpu", lambda: not is_left)
    monkeypatch.setattr(library, "leave_gpus", leave)
    monkeypatch.setattr(open_pair, "devices", lambda: [("Vulkan", "a small GPU", 40 * MIB, 64 * MIB)])
    monkeypatch.setattr(open_pair, "load", unlucky)
    return found


def test_less_is_asked_of_it_each_time_and_then_nothing(asked: list[int]) -> None:
    engine = LoadedEngine(DEMO, OPTIONS)
    try:
        assert asked[0] == ALL_LAYERS
        assert len(asked) == len(open_pair.SHARES)
        assert asked[1] > asked[2] >= 0
        assert "less memory than it reports" in engine.facts.left_out
        assert not engine.facts.has_gpu
        assert "".join(chunk.text for chunk in engine.reply("What is a list?", Sampling(temperature=0), 5))
    finally:
        engine.close()
