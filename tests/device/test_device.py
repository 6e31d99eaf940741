"""The ways of the library that only a device takes: offload, its memory, kernels that round by width, its loss."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.instruments.heads import head_for, write_head
from bench.instruments.planted import prompts
from bench.instruments.shapes import TINY
from runtime.backends.library import devices
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.backends.shared import SharedBackend
from runtime.core.draft import Draft, PassInput
from runtime.core.errors import SettingsError
from runtime.core.pressure import Thresholds
from runtime.engine import Chunk, Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.engine.process.client import EngineProcess
from runtime.loading import exactness, open_pair, profile
from runtime.loading.footprint import ALL_LAYERS
from runtime.models.cache_layout import HALVES
from runtime.models.registry import Pair
from tests.device.conftest import Open

GREEDY, SEEDED = Sampling(temperature=0), Sampling(temperature=0.8, seed=5)
PROMPT = prompts(TINY.vocab, [0], 48)[0]
CLOSE = 0.1  # of a logit: rounding of half-precision kernels, far below what tells tokens apart here
NOTHING_SPARED = Thresholds(tight_device_bytes=0, critical_device_bytes=0)


def tokens_of(chunks: list[Chunk]) -> list[int]:
    return [token for chunk in chunks for token in chunk.tokens]


def said(engine: LoadedEngine, sampling: Sampling = GREEDY, n: int = 12, **more: str) -> tuple[list[int], int]:
    """The tokens of a reply, and how many were drafted for it."""
    chunks = list(engine.reply(PROMPT, sampling, n, **more))  # type: ignore[arg-type]
    return tokens_of(chunks), sum(made.n_drafted for made in engine.passes())


def test_everything_is_offloaded_and_the_values_of_the_cache_are_halves(opened: Open) -> None:
    engine = opened()
    assert engine.facts.has_gpu
    assert (engine._loaded.wanted.plan is None) or (engine._loaded.wanted.plan.n_gpu_layers == ALL_LAYERS)
    assert engine._loaded.backend.model.cache_types == HALVES
    assert len(said(engine)[0]) == 12


@pytest.fixture(scope="module")
def rows(pair: Pair) -> dict[int, np.ndarray]:
    """Logits after the same tokens with so many layers on the device."""
    found = {}
    for n in (0, 1, TINY.layers, -1):
        model = LlamaModel(pair.target, gpu_layers=n)
        backend = LlamaBackend(model, 256, 4)
        found[n] = backend.forward(np.arange(8, dtype=np.int32), Draft((3, 5))).copy()
        backend.close()
        model.close()
    return found


@pytest.mark.parametrize("n", [1, TINY.layers, -1])
def test_layers_compute_the_same_wherever_they_are(rows: dict[int, np.ndarray], n: int) -> None:
    assert np.abs(rows[n] - rows[0]).max() < CLOSE
    assert np.array_equal(rows[n].argmax(axis=1), rows[0].argmax(axis=1))


def test_where_the_device_has_little_memory_layers_stay_with_the_processor(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    little = [(kind, name, 0 if kind != "CPU" else free, total) for kind, name, free, total in devices()]
    monkeypatch.setattr(open_pair, "devices", lambda: little)
    engine = opened(memory=NOTHING_SPARED)
    assert engine._loaded.wanted.plan is not None
    assert engine._loaded.wanted.plan.n_gpu_layers == 0
    assert "0 of 3 layers are on the GPU" in engine.facts.left_out
    assert len(said(engine)[0]) == 12


def test_the_self_test_says_what_is_exact(opened: Open) -> None:
    found = opened().facts.exactness
    assert found.tried == 4
    assert found.is_exact or found.padded or "differ" in str(found)


def test_near_ties_are_counted_where_inexact_passes_are_used(opened: Open) -> None:
    engine = opened(fast=True, fixed_k=3)
    stats = list(engine.reply(PROMPT, GREEDY, 12))[-1].stats
    assert stats is not None
    assert sum(each.n_drafted for each in stats.steps) > 0
    if not engine.facts.exactness.is_exact:
        assert not engine.facts.is_reproducible
        assert engine.facts.exactness.difference > 0
        assert stats.n_inexact > 0
    assert 0 <= stats.n_near_ties <= 12


@pytest.fixture
def padding(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, where wider passes cost nothing; a device in software reads long prompts too slowly."""
    monkeypatch.setattr(profile, "COSTS_NOTHING", float("inf"))
    monkeypatch.setattr(profile, "PADDED", (4,))
    monkeypatch.setattr(exactness, "CONTEXTS", (32,))
    monkeypatch.setattr(profile.ProfileCache, "read", lambda self: {})


@pytest.mark.usefixtures("padding")
def test_padded_passes_are_exact_and_a_text_is_the_same_with_and_without_drafts(opened: Open) -> None:
    engines = {name: opened(**options) for name, options in (
        ("plain", {"drafters": ()}), ("model", {"fixed_k": 3}), ("lookup", {"drafters": ("ngram",)}),
    )}  # fmt: skip
    found = engines["plain"].facts.exactness
    if found.is_exact:
        pytest.skip("this device rounds alike at every width")
    assert found.padded == 4
    for sampling in (GREEDY, SEEDED):
        wanted, _ = said(engines["plain"], sampling)
        text, n_drafted = said(engines["model"], sampling)
        assert text == wanted == said(engines["lookup"], sampling)[0]
        assert n_drafted > 0


@pytest.fixture(scope="module")
def plain(pair: Pair) -> list[int]:
    """What is said without drafts."""
    with closing(LoadedEngine(pair, Options(threads=1, n_ctx=256, max_k=3, drafters=(), fast=True))) as engine:
        return said(engine)[0]


@pytest.mark.parametrize("name", ["model", "ngram", "suffix", "prediction", "grammar"])
def test_drafters_draft_and_say_the_same(opened: Open, plain: list[int], name: str) -> None:
    engine = opened(drafters=(name,), fast=True, fixed_k=2)
    told = {"prediction": "".join(map(engine.token_text, plain))} if name == "prediction" else {}
    text, n_drafted = said(engine, **told)
    assert text == plain
    assert n_drafted > 0 or name in ("ngram", "suffix", "grammar", "prediction")


def test_a_window_of_tokens_is_a_tree_there_too(opened: Open, plain: list[int]) -> None:
    engine = opened(drafters=("lookahead",), fast=True, max_k=9, fixed_k=9)
    assert said(engine)[0] == plain


def test_leaving_early_is_declined_where_layers_are_on_a_device(opened: Open) -> None:
    """It rewrites the graph between passes, which crashed on Vulkan in software."""
    with pytest.raises(SettingsError, match="its graph does not run on the CPU only"):
        opened(drafters=("layerskip",))


def test_a_head_reads_hidden_states_of_the_device(opened: Open, plain: list[int], pair: Pair, tmp_path: Path) -> None:
    head = write_head(tmp_path / "head.gguf", head_for(pair.target))
    engine = opened(replace(pair, draft=head), drafters=("eagle",), fast=True, fixed_k=2)
    text, n_drafted = said(engine)
    assert (text, engine.facts.left_out) == (plain, "")
    assert n_drafted > 0


def test_a_device_short_of_memory_loses_the_draft_model_first(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = opened(fast=True)
    before = engine.status.memory_level
    low = [(kind, name, 1 if kind != "CPU" else free, total) for kind, name, free, total in devices()]
    monkeypatch.setattr(engine._loaded.reader, "_devices", lambda: low)
    engine.decoder.active.degrade()
    assert (before, engine.status.memory_level) == ("OK", "CRITICAL")
    assert devices()[0][1] in engine.status.given_up
    assert engine._loaded.draft is not None
    assert not engine._loaded.draft.is_open
    assert said(engine)[1] == 0


def test_conversations_are_set_aside_and_come_back(pair: Pair) -> None:
    model = LlamaModel(pair.target)
    backend = LlamaBackend(model, 256, 4)
    backend.set_slots(2)
    first, second = (np.full(40, token, dtype=np.int32) for token in (3, 7))
    wanted = backend.forward(first).copy()
    backend.forward(second)
    before = backend.n_decoded
    assert np.abs(backend.forward(first) - wanted).max() < CLOSE
    assert backend.n_decoded - before == 1
    backend.close()
    model.close()


def test_conversations_share_passes(pair: Pair) -> None:
    model = LlamaModel(pair.target)
    shared, alone = SharedBackend(model, 256, 4, n_seats=2), LlamaBackend(model, 256, 4)
    shared.set_slots(2)
    texts = [np.arange(n, dtype=np.int32) for n in (9, 6)]
    for each in texts:
        shared.forward(each[:-1])
    together = [rows.copy() for rows in shared.forward_all([PassInput(texts[0]), PassInput(texts[1], Draft((4, 5)))])]
    assert np.abs(together[0] - alone.forward(texts[0])).max() < CLOSE
    assert np.abs(together[1] - alone.forward(texts[1], Draft((4, 5)))).max() < CLOSE
    for each in (shared, alone, model):
        each.close()


def test_a_driver_that_fails_is_left_alone(pair: Pair) -> None:
    heard: list[str] = []
    engine = EngineProcess(pair, Options(threads=1, n_ctx=256, max_k=3, drafters=()), say=heard.append)
    assert engine.facts.has_gpu
    chunks: list[Chunk] = []
    for chunk in engine.reply(PROMPT, GREEDY, 12):
        chunks.append(chunk)
        if len(chunks) in (3, 5):  # twice at the same place
            with suppress(ProcessLookupError):
                os.kill(engine.kept.current._process.pid, signal.SIGABRT)
            time.sleep(0.1)
    assert len(tokens_of(chunks)) == 12
    assert "on the processor, as the GPU or its driver may be the cause" in heard[-1]
    assert not engine.facts.has_gpu
    engine.close()


def test_a_device_that_is_not_there_is_no_device() -> None:
    """As Vulkan's variable names one; of the variables of other backends this was not tried."""
    script = "from runtime.backends import library; print(library.has_gpu(), len(library.devices()))"
    environment = {**os.environ, "GGML_VK_VISIBLE_DEVICES": "99"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    if devices()[0][0] == "Vulkan":
        assert done.stdout.split() == ["False", "1"]
