"""Vision encoders on the hub: fetched with their model, alone by name, and removed with the last model."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.models import hub as commands
from runtime.models.hub.cache import cached, cached_path, remove
from runtime.models.hub.fetch import Hub
from runtime.models.projector import projector_near
from tests.models.test_hub import CONTENT, how, hub, registry
from tests.support.eyes import write_projector
from tests.support.hub_server import Behaviour

__all__ = ["how", "hub", "registry"]  # fixtures
EYES = "owner/eyes"


def with_eyes(how: Behaviour, *encoders: str) -> None:
    """Give the hub a repository with a model in each of two precisions, and these vision encoders."""
    how.files |= {f"{EYES}/{name}": CONTENT for name in ("m-Q4_0.gguf", "m-Q8_0.gguf")}
    how.files |= {f"{EYES}/{name}": name.encode() * 9 for name in encoders}


def test_a_models_vision_encoder_comes_with_it_and_goes_with_the_last_model(hub: Hub, how: Behaviour) -> None:
    with_eyes(how, "mmproj-BF16.gguf", "mmproj-F16.gguf", "mmproj-F32.gguf", "other/mmproj-F16.gguf")
    assert [file.name for file in hub.plan(f"{EYES}:Q4_0")] == ["m-Q4_0.gguf"]
    for precision in ("Q4_0", "Q8_0"):
        name = f"{EYES}:{precision}"
        path = hub.pull(name, hub.plan(name, with_encoder=True), lambda file, n: None)
        assert path == cached_path(f"hf:{name}", hub.cache)
        assert projector_near(path) == path.with_name("mmproj-F16.gguf")
    remove(f"{EYES}:Q4_0", hub.cache)
    assert [file.name for file in cached(hub.cache)] == ["m-Q8_0.gguf", "mmproj-F16.gguf"]
    remove(f"{EYES}:Q8_0", hub.cache)
    assert cached(hub.cache) == []


def test_a_vision_encoder_is_pulled_alone_by_its_whole_name(hub: Hub, how: Behaviour) -> None:
    with_eyes(how, "mmproj-BF16.gguf", "mmproj-F16.gguf")
    assert [file.name for file in hub.plan(f"{EYES}:mmproj-BF16.gguf", with_encoder=True)] == ["mmproj-BF16.gguf"]


def test_pull_names_the_vision_encoder_and_can_leave_it_out(
    registry: Path, hub: Hub, how: Behaviour, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with_eyes(how, "mmproj-F16.gguf")
    how.files[f"{EYES}/mmproj-F16.gguf"] = write_projector(tmp_path / "any.gguf", "mlp").read_bytes()
    commands.pull_all(f"{EYES}:Q4_0", sees=False)
    assert [file.name for file in cached(hub.cache)] == ["m-Q4_0.gguf"]
    commands.pull_all(f"{EYES}:Q4_0")
    assert "with mmproj-F16.gguf, its vision encoder (mlp)" in capsys.readouterr().out
    how.files[f"{EYES}/mmproj-F16.gguf"] = b"nothing" * 99
    commands.pull_all(f"{EYES}:Q8_0")
    assert "its vision encoder (" in capsys.readouterr().out
