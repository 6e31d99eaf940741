"""Checkpoints of Medusa and Hydra heads become files that draft: made up, in the form of the published ones."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from bench.instruments.shapes import TINY
from runtime.core.errors import ModelError
from runtime.drafters.network import Rows
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.models.heads import unfit, wanted_by
from runtime.training.own_head_file import write_own_head
from runtime.training.published_heads import converted
from tests.support import tiny_target
from tests.support.cli import failing, slipstream

target_file = tiny_target.target_file

WIDTH, VOCAB = TINY.width, TINY.vocab
NAMED = {"base_model_name_or_path": "lmsys/vicuna-7b-v1.3"}
MEDUSA = {"medusa_num_heads": 2, "medusa_num_layers": 1, **NAMED}  # fewer than there are, as in the published one
HYDRA = {"hydra_num_heads": 3, "hydra_num_layers": 2, "hydra_head_arch": "mlp", "grounded_heads": True, **NAMED}
BF16 = "BF16"


def values(seed: int, *size: int) -> Rows:
    return (np.random.default_rng(seed).standard_normal(size) * size[-1] ** -0.5).astype(np.float32)


class Made(dict[str, Rows]):
    """The tensors of a checkpoint by its names; `ours` has our names for them."""

    def __init__(self) -> None:
        self.ours: dict[str, str] = {}

    def put(self, theirs: str, ours: str, n: int, n_inputs: int, has_bias: bool = True) -> None:
        for what, size in (("weight", (n, n_inputs)), ("bias", (n,)))[: 1 + has_bias]:
            self[f"{theirs}.{what}"] = values(len(self), *size)
            self.ours[f"{theirs}.{what}"] = f"{ours}.{what}"


def medusa(heads: int = 3, layers: int = 1, prefix: str = "") -> Made:
    made = Made()
    for i in range(heads):
        for j in range(layers):
            made.put(f"{prefix}{i}.{j}.linear", f"head.{i}.{j}", WIDTH, WIDTH)
        made.put(f"{prefix}{i}.{layers}", f"head.{i}.output", VOCAB, WIDTH, has_bias=False)
    return made


def hydra(heads: int = 3, layers: int = 2, dropout: int = 0) -> Made:
    """With `dropout`, each block follows a layer without weights, as in the later checkpoints."""
    made = Made()
    for i in range(heads):
        for j in range(layers):
            theirs = f"hydra_mlp.{i}.{j * (1 + dropout) + dropout}"
            made.put(f"{theirs}.linear", f"head.{i}.{j}", WIDTH, (i + 2) * WIDTH if j == 0 else WIDTH)
            if j == 0:
                made.put(f"{theirs}.res_connection", f"head.{i}.0.skip", WIDTH, (i + 2) * WIDTH)
        made.put(f"hydra_lm_head.{i}.1" if dropout else f"hydra_lm_head.{i}", f"head.{i}.output", VOCAB, WIDTH)
    return made


def as_safetensors(tensors: Mapping[str, Rows], kind: str = "F32") -> bytes:
    """The format is so plain that the file can be written by hand: a header in JSON, and the values."""
    header, data = dict[str, object](), b""
    for name, rows in tensors.items():
        raw = (rows.view(np.uint32) >> 16).astype(np.uint16).tobytes() if kind == BF16 else rows.tobytes()
        header[name] = {"dtype": kind, "shape": list(rows.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    told = json.dumps(header).encode()
    return struct.pack("<Q", len(told)) + told + data


def checkpoint(folder: Path, config: Mapping[str, object], tensors: Mapping[str, Rows], kind: str = "F32") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(as_safetensors(tensors, kind))
    return folder


CHECKPOINTS = pytest.mark.parametrize(
    ("config", "tensors", "said"),
    [
        (MEDUSA, medusa(), "3 heads (medusa)"),
        (MEDUSA, medusa(5, 2, "medusa_head."), "5 heads (medusa)"),
        (HYDRA, hydra(), "3 heads (hydra)"),
        (HYDRA, hydra(2, 3, dropout=1), "2 heads (hydra)"),
    ],
    ids=["medusa", "medusa of two layers", "hydra", "hydra with dropout"],
)


@CHECKPOINTS
def test_a_checkpoint_becomes_a_file_that_drafts_and_changes_no_text(
    config: dict[str, object], tensors: dict[str, Rows], said: str, target_file: Path, tmp_path: Path
) -> None:
    pytest.importorskip("safetensors")
    file = tmp_path / "head.gguf"
    write_own_head(file, converted(checkpoint(tmp_path / "published", config, tensors)))
    facts = ModelFacts(read_model_header(file))
    assert wanted_by(facts) == f"{said} for lmsys/vicuna-7b-v1.3 of 512 tokens and width 64"
    assert unfit(facts, ModelFacts(read_model_header(target_file)), file) == ""
    tiny_target.assert_drafts_the_same_text(target_file, file)


@CHECKPOINTS
def test_every_number_comes_over_at_its_place(
    config: dict[str, object], tensors: Made, said: str, tmp_path: Path
) -> None:
    pytest.importorskip("safetensors")
    found = converted(checkpoint(tmp_path / "published", config, tensors))
    assert sorted(found.weights) == sorted(tensors.ours.values())
    for name, rows in tensors.items():
        np.testing.assert_array_equal(found.weights[tensors.ours[name]], rows)


def test_half_precision_is_read(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    rounded = converted(checkpoint(tmp_path / "published", MEDUSA, medusa(), BF16)).weights["head.0.0.weight"]
    np.testing.assert_allclose(rounded, medusa()["0.0.linear.weight"], rtol=2**-7)


def without(tensors: dict[str, Rows], name: str) -> dict[str, Rows]:
    return {key: rows for key, rows in tensors.items() if key != name}


@pytest.mark.parametrize(
    ("config", "tensors", "clause"),
    [
        (
            HYDRA | {"hydra_head_arch": "prefix-mlp"},
            hydra(),
            "that attend to the whole text (Hydra++), which Slipstream",
        ),
        (HYDRA | {"hydra_head_arch": "cross-attn"}, hydra(), "Hydra heads of the form 'cross-attn'"),
        (HYDRA | {"grounded_heads": False}, hydra(), "that do not read the tokens drafted before"),
        (
            MEDUSA,
            medusa() | {"model.norm.weight": values(1, WIDTH)},
            "has the tensor 'model.norm.weight', which Medusa heads",
        ),
        (MEDUSA, without(medusa(), "1.0.linear.bias"), "has no head.1.0.bias among its Medusa heads"),
        (MEDUSA, medusa(16), "has 16 heads, and a draft has at most 15 tokens"),
        (MEDUSA, {}, "has no Medusa or Hydra heads"),
    ],
)
def test_what_cannot_be_run_is_named(
    config: dict[str, object], tensors: dict[str, Rows], clause: str, tmp_path: Path
) -> None:
    pytest.importorskip("safetensors")
    with pytest.raises(ModelError) as error:
        converted(checkpoint(tmp_path / "published", config, tensors))
    assert clause in str(error.value)


def test_damaged_and_missing_files_are_a_sentence(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    folder = checkpoint(tmp_path / "published", MEDUSA, medusa())
    whole = (folder / "model.safetensors").read_bytes()
    for data in (b"", b"\0" * 100, whole[:20], whole[:-1], whole.replace(b'"F32"', b'"I32"')):
        (folder / "model.safetensors").write_bytes(data)
        with pytest.raises(ModelError, match=r"model\.safetensors is damaged"):
            converted(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="has no weights"):
        converted(folder)
    (folder / "config.json").write_text("[")
    with pytest.raises(ModelError, match="cannot be read"):
        converted(folder)


def test_a_file_of_pytorch_without_pytorch_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text(json.dumps(MEDUSA))
    (tmp_path / "medusa_lm_head.pt").write_bytes(b"nothing")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ModelError, match=r"medusa_lm_head\.pt needs torch, which is not installed\."):
        converted(tmp_path)


def test_a_file_of_pytorch_is_read_and_runs_nothing(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="the extra `train` is not installed")
    (tmp_path / "config.json").write_text(json.dumps(MEDUSA))
    torch.save({name: torch.from_numpy(rows).half() for name, rows in medusa().items()}, tmp_path / "medusa_lm_head.pt")
    np.testing.assert_allclose(converted(tmp_path).weights["head.2.0.weight"], medusa()["2.0.linear.weight"], atol=1e-3)
    torch.save({"0.0.linear.weight": json.JSONDecoder}, tmp_path / "medusa_lm_head.pt")
    with pytest.raises(ModelError, match="is damaged"):
        converted(tmp_path)


def test_the_command_writes_a_file_and_says_what_it_is(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    folder = checkpoint(tmp_path / "published", MEDUSA, medusa())
    done = slipstream("models", "convert-head", str(folder), "-o", str(tmp_path / "head.gguf"))
    assert done.returncode == 0, done.stderr
    assert "3 medusa heads for lmsys/vicuna-7b-v1.3, 512 tokens." in " ".join(done.stderr.split())
    assert (tmp_path / "head.gguf").is_file()
    assert "cannot be written" in failing(
        "models", "convert-head", str(folder), "-o", str(tmp_path / "no" / "head.gguf")
    )
