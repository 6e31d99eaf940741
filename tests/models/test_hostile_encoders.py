"""Vision encoders that are damaged or made to harm end a process of their own, not that of the models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from runtime.core.errors import ModelError
from runtime.engine import Message, Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.loading import probing
from runtime.models.registry import Pair
from tests.support.eyes import Tensors, needs_mtmd, width_of, write_projector, write_target

pytestmark = needs_mtmd


def weights(*shape: int) -> Tensors:
    """A query matrix of another shape."""
    return {"v.blk.1.attn_q.weight": np.ones(shape, dtype=np.float32)}


@pytest.mark.parametrize(
    ("changes", "others"),
    [
        ({}, weights(64, 32)),
        ({}, weights(3, 64)),
        ({"clip.vision.attention.head_count": 64}, {"v.position_embd.weight": np.ones((2, 64), dtype=np.float32)}),
        ({"clip.vision.image_size": 2**20}, {}),
        ({"clip.vision.feed_forward_length": 2**31}, {}),
        ({"clip.vision.block_count": 2**30}, {}),
    ],
)
def test_a_file_that_ends_the_library_is_a_sentence(
    tmp_path: Path, changes: dict[str, object], others: Tensors
) -> None:
    target = write_target(tmp_path, "mlp")
    encoder = write_projector(tmp_path / "mmproj-bad.gguf", "mlp", width_of(target), changes=changes, others=others)
    options = Options(256, (), threads=1)
    with pytest.raises(ModelError, match=r"mmproj-bad\.gguf"):
        LoadedEngine(Pair("bad", target, mmproj=encoder), options)
    engine = LoadedEngine(Pair("blind", target), options)
    assert engine.facts.vision == ""
    assert list(engine.reply([Message("user", "Hello")], Sampling(), 2))
    engine.close()


def test_a_sound_file_is_tried_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = write_target(tmp_path, "mlp")
    write_projector(tmp_path / "mmproj-good.gguf", "mlp", width_of(target))
    for _ in range(2):
        engine = LoadedEngine(Pair("seeing", target), Options(256, (), threads=1))
        assert engine.facts.vision == "mlp"
        engine.close()
        monkeypatch.setattr(probing, "Child", None)
