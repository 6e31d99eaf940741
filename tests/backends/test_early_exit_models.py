"""Which models exit early, and what is said where one cannot."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.instruments.shapes import write_random
from demo.evaluate import keep_first_layers
from runtime.backends import private_llama
from runtime.backends.heads import early_passes, nodes
from runtime.backends.heads.early_exit import EarlyExitBackend, ExitCheck
from runtime.backends.heads.graph import EarlyExitError
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.core.draft import NO_DRAFT, Draft
from runtime.core.errors import SettingsError
from runtime.engine import Options
from runtime.engine.loaded import LoadedEngine
from runtime.loading.loaded_pair import LoadedPair
from runtime.models.registry import load_registry
from tests.support.early_exit import SHAPE, array


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaModel]:
    """Random weights of an architecture that exits early."""
    model = LlamaModel(write_random(tmp_path_factory.mktemp("early") / "whole.gguf", SHAPE))
    yield model
    model.close()


@pytest.mark.parametrize("architecture", ["qwen2", "smollm3", "exaone"])
def test_other_architectures_exit_like_their_pruned_selves(tmp_path: Path, architecture: str) -> None:
    keep_first_layers(
        write_random(tmp_path / "whole.gguf", SHAPE, architecture), 3, SHAPE.layers, tmp_path / "early.gguf"
    )
    models = [LlamaModel(tmp_path / name) for name in ("whole.gguf", "early.gguf")]
    early, pruned = EarlyExitBackend(models[0], 64, n_rows=5), LlamaBackend(models[1], 64, n_rows=5)
    early.exit_at(3)
    assert early.check() == ExitCheck("", reuses=True)
    context = array(list(range(40)))
    assert np.array_equal(early.early.forward(context).copy(), pruned.forward(context))
    for opened in (early, pruned, *models):
        opened.close()


# An architecture whose last layer's output has no name
NAMELESS = early_passes.lib, "llama_model_n_layer", lambda handle: SHAPE.layers + 1
ELSEWHERE = nodes.ggml, "ggml_backend_buffer_is_host", lambda buffer: False
OTHERWISE = private_llama.ggml, "ggml_tensor_overhead", lambda: ctypes.sizeof(private_llama.Tensor)
CELLLESS = nodes.ggml, "ggml_op_name", lambda op: b"CPY"


@pytest.mark.parametrize(
    ("patch", "why"),
    [
        (NAMELESS, "does not name"),
        (ELSEWHERE, "CPU only"),
        (OTHERWISE, "lays out its tensors"),
        (CELLLESS, "which cells"),
    ],
    ids=["no names", "other devices", "another layout", "no cells"],
)
def test_it_declines_a_graph_that_it_does_not_know(
    target: LlamaModel, monkeypatch: pytest.MonkeyPatch, patch: tuple[object, str, object], why: str
) -> None:
    monkeypatch.setattr(*patch)
    with pytest.raises(EarlyExitError, match=why):
        EarlyExitBackend(target, 64)


def test_it_declines_an_architecture_that_cannot_rewind_and_one_of_a_single_layer(
    target: LlamaModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(early_passes.lib, "llama_model_n_layer", lambda handle: 1)
    with pytest.raises(EarlyExitError, match="one layer"):
        EarlyExitBackend(target, 64)
    monkeypatch.setattr(target, "is_recurrent", True)
    with pytest.raises(EarlyExitError, match="drop rejected tokens"):
        EarlyExitBackend(target, 64)


def test_a_pair_that_cannot_exit_early_runs_without_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes.ggml, "ggml_backend_buffer_is_host", lambda buffer: False)
    pair = replace(load_registry()["demo"], drafters=("ngram", "layerskip"))
    loaded = LoadedPair(pair, Options())
    assert [drafter.name for drafter in loaded.decoder.active.drafters] == ["ngram"]
    assert loaded.decoder.why_plain().code == "architecture"
    assert "CPU only" in loaded.decoder.why_plain().text
    loaded.close()


def test_who_asks_for_it_where_it_cannot_be_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes.ggml, "ggml_backend_buffer_is_host", lambda buffer: False)
    with pytest.raises(
        SettingsError, match=r"'layerskip' cannot run on target.gguf, because its graph .* Leave it out of `--drafters`"
    ):
        LoadedEngine(load_registry()["demo"], Options(drafters=("layerskip",)))


def test_the_bundled_target_exits_like_its_pruned_self(tmp_path: Path) -> None:
    path = load_registry()["demo"].target
    model = LlamaModel(path)
    layers = int(model.metadata("slipstream.exit_layer"))
    keep_first_layers(path, layers, int(model.metadata("llama.block_count")), tmp_path / "early.gguf")
    cut = LlamaModel(tmp_path / "early.gguf")
    early, full, pruned = (
        EarlyExitBackend(model, 512, n_rows=9),
        LlamaBackend(model, 512, n_rows=9),
        LlamaBackend(cut, 512, n_rows=9),
    )
    early.exit_at(layers)
    assert early.check() == ExitCheck("", reuses=True)
    for backend in (early, full, pruned):
        backend.set_threads(1, 1)
    context = np.random.default_rng(3).integers(0, early.n_vocab, 320).astype(np.int32)
    for n in (4, 300):
        for i in range(8):
            assert np.array_equal(early.early.forward(context[: n + i]).copy(), pruned.forward(context[: n + i]))
        draft = Draft(tuple(context[n : n + 8].tolist()))
        assert np.array_equal(early.forward(context[:n], draft).copy(), full.forward(context[:n], draft))
    assert early.n_reused == 9 + 2 * 9
    assert np.array_equal(early.forward(context, NO_DRAFT).copy(), full.forward(context, NO_DRAFT))
    for opened in (early, full, pruned, model, cut):
        opened.close()
