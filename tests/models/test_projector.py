"""A vision encoder's file is checked by its header, before the library sees it."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.models.info import show
from bench.instruments.shapes import TINY, write_random
from runtime.backends.model import LlamaModel
from runtime.core.errors import ModelError
from runtime.models.projector import check_width, projector_near, read_projector
from tests.support.eyes import KINDS, write_projector


@pytest.mark.parametrize("kind", KINDS)
def test_the_header_tells_the_kind_the_width_and_the_memory(tmp_path: Path, kind: str) -> None:
    path = write_projector(tmp_path / "mmproj.gguf", kind)
    found = read_projector(path)
    assert (found.kind, found.width) == (kind, TINY.width)
    assert found.n_needed > path.stat().st_size
    check_width(path, found, TINY.width, "any.gguf")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"clip.projector_type": "hunyuanvl"}, "kind hunyuanvl, whose images have positions that depend on the images"),
        ({"clip.has_vision_encoder": False}, "encodes no images"),
        ({"clip.projector_type": ""}, "encodes no images"),
        ({"clip.vision.patch_size": 0}, "a size of the encoder is missing"),
        ({"clip.vision.attention.head_count": 5}, "5 heads do not divide a width of 64"),
        ({"clip.projector_type": "idefics3"}, "its projection is missing"),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_sentence(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    path = write_projector(tmp_path / "mmproj.gguf", "mlp", changes=changes)
    with pytest.raises(ModelError, match=message):
        read_projector(path)


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is no vision encoder, but a model of the kind llama"):
        read_projector(write_random(tmp_path / "model.gguf", TINY))
    with pytest.raises(ModelError, match="does not exist"):
        read_projector(tmp_path / "missing.gguf")
    cut = write_projector(tmp_path / "mmproj.gguf", "mlp")
    cut.write_bytes(cut.read_bytes()[:-5000])
    with pytest.raises(ModelError):
        read_projector(cut)


def test_an_encoder_of_another_width_does_not_belong_to_the_model(tmp_path: Path) -> None:
    path = write_projector(tmp_path / "mmproj.gguf", "gemma3", 96)
    with pytest.raises(ModelError, match="its embeddings are 96 wide, the model's 64"):
        check_width(path, read_projector(path), 64, "any.gguf")


def test_the_only_encoder_in_the_folder_is_found(tmp_path: Path) -> None:
    target = tmp_path / "model.gguf"
    assert projector_near(target) is None
    for name in ("mmproj-a.gguf", "mmproj-b.gguf"):
        (tmp_path / name).touch()
        assert projector_near(target) == (tmp_path / name if name.endswith("a.gguf") else None)


def test_it_is_told_from_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_projector(tmp_path / "mmproj-any.gguf", "mlp")
    with pytest.raises(ModelError, match="is a vision encoder, no model"):
        LlamaModel(path)
    show(str(path), as_json=False)
    assert f"vision encoder  mlp, for models with embeddings of {TINY.width} numbers" in capsys.readouterr().out
