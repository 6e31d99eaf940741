"""What a model's file recommends for sampling is used where the registry names nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from runtime.models.header import Header
from runtime.models.own_sampling import sampling_in, settings_of
from runtime.models.registry import find_pair, load_registry

KEY = "general.sampling."


def header(**values: object) -> Header:
    return Header({f"{KEY}{name}": value for name, value in values.items()}, (), 0)  # type: ignore[misc]


def test_valid_numbers_are_taken_as_short_decimals_and_others_left_out() -> None:
    assert settings_of(header(temp=0.6000000238, top_k=20, top_p=0.949999988, min_p=0.0)) == {
        "temperature": 0.6,
        "top_k": 20,
        "top_p": 0.95,
        "min_p": 0.0,
    }
    assert settings_of(header(temp=float("nan"), top_k="20", top_p=3.0, min_p=True)) == {}


def test_a_file_that_cannot_be_read_recommends_nothing(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    assert sampling_in(tmp_path / "x.gguf") == sampling_in(tmp_path / "none.gguf") == {}


def test_the_registry_goes_before_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.models.registry.sampling_in", lambda target: {"temperature": 0.6, "top_k": 20})
    registry = load_registry()
    demo = find_pair("demo", registry)
    assert (demo.temperature, demo.top_k) == (0.0, 20)
    assert {"temperature", "top_k", "context"} <= set(demo.named)
    assert "top_p" not in demo.named
    alone = find_pair(str(demo.target), registry)
    assert (alone.temperature, alone.top_k, alone.top_p) == (0.6, 20, 0.95)
    assert replace(demo, named=()) == demo
