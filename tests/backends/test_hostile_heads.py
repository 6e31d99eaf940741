"""Checkpoints of heads that are damaged or made to harm: refused before anything is made of them."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from runtime.core.errors import ModelError
from runtime.drafters.network import Rows
from runtime.training.published_eagle import eagle_shape
from runtime.training.published_heads import converted, refuse_packed
from tests.models.test_published_heads import MEDUSA, VOCAB, WIDTH, as_safetensors, medusa, values


@pytest.mark.parametrize(
    ("changes", "config"),
    [
        ({"0.1000000000000.linear.weight": values(1, WIDTH, WIDTH)}, {}),
        ({"9" * 5000 + ".0.linear.weight": values(1, WIDTH, WIDTH)}, {}),
        ({"0.999.linear.weight": values(1, WIDTH, WIDTH)}, {}),
        ({"0.0.linear.weight": values(1, WIDTH, WIDTH + 1)}, {}),
        ({"0.0.linear.bias": values(1, WIDTH - 1)}, {}),
        ({"0.0.linear.bias": np.full(WIDTH, np.nan, np.float32)}, {}),
        ({"0.0.linear.bias": np.float32(1).reshape(())}, {}),
        ({"0.1.weight": values(1, VOCAB, WIDTH - 1)}, {}),
        ({"0.1.weight": np.full((VOCAB, WIDTH), np.inf, np.float32)}, {}),
        ({"0.1.weight": values(1, VOCAB, WIDTH, 1)}, {}),
        *(({f"{i}.1.weight": None for i in range(3)}, {"vocab_size": n}) for n in (-5, 10**30, 1.5, "x")),
    ],
    ids=range(14),
)
def test_a_checkpoint_that_no_loader_would_take_is_refused_before_anything_is_made(
    changes: dict[str, Rows | None], config: dict[str, object], tmp_path: Path
) -> None:
    tensors = {name: rows for name, rows in (medusa() | changes).items() if rows is not None}
    (tmp_path / "heads").mkdir()
    (tmp_path / "heads" / "config.json").write_text(json.dumps(MEDUSA | config))
    (tmp_path / "heads" / "model.safetensors").write_bytes(as_safetensors(tensors))
    with pytest.raises(ModelError):
        converted(tmp_path / "heads")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
@pytest.mark.parametrize("is_device", [True, False])
def test_a_checkpoint_of_no_files_is_not_waited_for(name: str, is_device: bool, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(MEDUSA))
    (tmp_path / "model.safetensors").write_bytes(as_safetensors(medusa()))
    (tmp_path / name).unlink()
    if is_device:
        (tmp_path / name).symlink_to("/dev/zero")
    else:
        os.mkfifo(tmp_path / name)
    with pytest.raises(ModelError):
        converted(tmp_path)


@pytest.mark.parametrize("kind", ["sparse", "meta", "expanded", "half expanded", "no tensor"])
def test_tensors_that_are_not_in_the_file_are_refused_before_they_are_made(kind: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="the extra `train` is not installed")
    made = {
        "sparse": torch.zeros(9, 9).to_sparse,
        "meta": lambda: torch.empty(10**6, 10**6, device="meta"),
        "expanded": lambda: torch.zeros(1).expand(10**6, 10**6),
        "half expanded": lambda: torch.zeros(1).half().expand(10**6, 10**6),
        "no tensor": lambda: 5,
    }
    (tmp_path / "config.json").write_text(json.dumps(MEDUSA))
    torch.save({"0.0.linear.weight": made[kind]()}, tmp_path / "medusa_lm_head.pt")
    with pytest.raises(ModelError, match=r"medusa_lm_head\.pt is damaged"):
        converted(tmp_path)


def test_a_packed_file_of_pytorch_is_not_unpacked(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "head.pt", "w", zipfile.ZIP_DEFLATED) as parts:
        parts.writestr("archive/data/0", bytes(10**6))
    with pytest.raises(ValueError, match="larger than the file"):
        refuse_packed(tmp_path / "head.pt")


@pytest.mark.parametrize("number", [1e308, float("nan"), -1, 0, 10**400, "x", [1]], ids=str)
def test_numbers_of_an_eagle_head_that_no_loader_takes_are_refused(number: object) -> None:
    with pytest.raises(ModelError, match=r"rope_theta in the config\.json of head is no positive number"):
        eagle_shape({}, {"hidden_size": 64, "num_attention_heads": 2, "rope_theta": number}, "head")


@pytest.mark.parametrize("config", ['{"hidden_size": 1' + "0" * 5000 + "}", "[" * 100_000, "7"])
def test_a_configuration_that_is_none_is_refused(config: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(config)
    (tmp_path / "model.safetensors").write_bytes(as_safetensors(medusa()))
    with pytest.raises(ModelError):
        converted(tmp_path)
