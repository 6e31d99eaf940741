"""Files of what was measured that are damaged: they cost a measurement and nothing else."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from platformdirs import user_cache_path

from runtime.engine import Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.loading.calibration import Calibration, remembered
from runtime.loading.exactness import Exactness
from runtime.loading.profile_cache import LEFT, ProfileCache
from runtime.models.registry import load_registry
from tests.support.quick import others_slow

GOOD = {"one": 2, "many": 1, "pass_seconds": {"1": 0.5, "2": 0.75}}
DAMAGED = {
    "empty": "", "null": "null", "a list": "[1]", "a number": "1e400", "nested": "[" * 200_000, "cut": '{"one": 2,',
    "no numbers": '{"one": NaN, "many": Infinity, "pass_seconds": {"1": NaN}}',
}  # fmt: skip


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED)
def test_what_is_no_object_of_numbers_is_nothing(tmp_path: Path, text: str) -> None:
    cache = ProfileCache("x", tmp_path)
    cache.path.write_text(text)
    assert cache.read() == {}
    assert remembered(cache) is cache.read_as(Exactness) is None


@pytest.mark.parametrize("change", [
    {"one": "2"}, {"one": 1e30}, {"one": 10**30}, {"many": 0}, {"many": None}, {"many": [1]}, {"pass_seconds": {}},
    {"pass_seconds": {"1": 1e308}}, {"pass_seconds": {"1": "a"}}, {"pass_seconds": {"1": -1}}, {"pass_seconds": [1]},
    {"pass_seconds": {"2": 0.5}},
])  # fmt: skip
def test_measurements_that_cannot_be_are_made_again(tmp_path: Path, change: dict[str, object]) -> None:
    cache = ProfileCache("x", tmp_path)
    cache.write(GOOD)
    assert remembered(cache) == Calibration(2, 1, {1: 0.5, 2: 0.75})
    cache.write(GOOD | change)
    assert remembered(cache) is None


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    cache = ProfileCache("x", tmp_path)
    os.mkfifo(cache.path)
    assert cache.read() == {}
    cache.path.unlink()
    cache.path.mkdir()
    assert cache.read() == {}
    cache.write(GOOD)
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


def test_what_a_killed_process_left_is_swept(tmp_path: Path) -> None:
    cache = ProfileCache("x", tmp_path)
    old, young = (tmp_path / f"y.json.{number}" for number in (1, 2))
    for path in (old, young):
        path.write_text("{")
    os.utime(old, (0, time.time() - 2 * LEFT))
    cache.write(GOOD)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.json", "y.json.2"]


@pytest.mark.parametrize("value", others_slow([None, "x", 1e308, 10**400, [], {"": {"": []}}, -1], ["x", -1]))
def test_an_engine_opens_whatever_its_files_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: object
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert user_cache_path("slipstream").is_relative_to(tmp_path)
    reply(Sampling(temperature=0))
    files = list(tmp_path.rglob("*.json"))
    assert len(files) > 2
    for file in files:
        file.write_text(json.dumps(dict.fromkeys(json.loads(file.read_text()), value)))
    assert reply(Sampling(temperature=0))


def reply(sampling: Sampling) -> str:
    """What the bundled pair says after a fresh start."""
    engine = LoadedEngine(load_registry()["demo"], Options(threads=1))
    said = "".join(chunk.text for chunk in engine.reply("import os", sampling, 8))
    engine.close()
    return said
