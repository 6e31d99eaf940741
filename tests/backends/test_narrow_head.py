"""Early passes whose head computes few words: the same for those, nothing else is touched, and only where it pays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.instruments.architectures.writer import write_family
from bench.instruments.shapes import Shape, write_random
from runtime.backends.heads import graph, nodes
from runtime.backends.heads.early_exit import EarlyExitBackend
from runtime.backends.heads.graph import EarlyExitError, NarrowHead
from runtime.backends.model import LlamaModel
from runtime.backends.trimmed import NEVER
from runtime.core.draft import Draft
from runtime.core.errors import ModelError, StoppedError
from runtime.engine import Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.loading import exit_layer
from runtime.loading.exit_layer import best_words, settle
from runtime.loading.neighbours import Neighbours
from runtime.models import trimmed
from runtime.models.registry import Pair

SHAPE = Shape(width=64, layers=6, heads=2, kv_heads=1, ffn=128, vocab=2048)
FEW = SHAPE.vocab // 4


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random(tmp_path_factory.mktemp("narrow") / "whole.gguf", SHAPE)


@pytest.fixture(autouse=True)
def _small_vocabularies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trimmed, "MIN_TOKENS", 64)


@pytest.fixture
def backend(path: Path) -> Iterator[EarlyExitBackend]:
    model = LlamaModel(path)
    opened = EarlyExitBackend(model, 256, 5)
    opened.exit_at(2)
    opened.reuses = True
    yield opened
    opened.close()
    model.close()


def passes(backend: EarlyExitBackend, text: Any) -> tuple[list[Any], list[Any]]:
    """Logits of early passes of several widths, and of the full passes between them."""
    backend._clear()
    early, full = [], []
    for n, k in ((20, 0), (21, 3), (22, 1), (40, 4)):
        draft = Draft(tuple(text[n : n + k].tolist()))
        full.append(backend.forward(text[: n - 1]).copy())
        early.append(backend.forward_early(text[:n], draft).copy())
        full.append(backend.forward(text[:n], Draft(draft.tokens or (5,))).copy())
    return early, full


def test_the_first_words_are_the_same_and_the_others_are_never_drafted(backend: EarlyExitBackend) -> None:
    text = np.random.default_rng(3).integers(0, SHAPE.vocab, 60).astype(np.int32)
    wide, before = passes(backend, text)
    backend.narrow(FEW)
    few, after = passes(backend, text)
    assert backend.n_reused > 0
    for all_words, first_words in zip(wide, few, strict=True):
        assert np.array_equal(first_words[:, :FEW], all_words[:, :FEW])
        assert (first_words[:, FEW:] == NEVER).all()
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
    backend.narrow(0)
    assert all(np.array_equal(a, b) for a, b in zip(wide, passes(backend, text)[0], strict=True))


@pytest.mark.parametrize("family", ["llama", "gemma3", "qwen3moe", "granite", "phi2", "cohere2", "gptoss"])
def test_heads_of_many_kinds_give_the_same(family: str, tmp_path: Path) -> None:
    """With a bias, a scale or a cap behind them, with a matrix of their own or the table of words."""
    model = LlamaModel(write_family(family, tmp_path))
    opened = EarlyExitBackend(model, 64, 4)
    try:
        opened.narrow(128)
        assert opened.nodes.head is not None
    finally:
        opened.close()
        model.close()


def test_a_head_that_gives_something_else_is_found_out(
    backend: EarlyExitBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    head_of = nodes.Nodes.head_of

    def displaced(self: nodes.Nodes, n_words: int) -> NarrowHead:
        head = head_of(self, n_words)
        head._few.data += head._few.nb[1]  # begins a word later
        return head

    monkeypatch.setattr(nodes.Nodes, "head_of", displaced)
    with pytest.raises(EarlyExitError, match="cannot be narrowed"):
        backend.narrow(FEW)
    assert backend.nodes.head is None
    assert best_words(backend) == 0


def test_a_graph_whose_head_is_not_told_keeps_it(backend: EarlyExitBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "HEADS", ())
    with pytest.raises(EarlyExitError, match="cannot be found"):
        backend.narrow(FEW)
    assert best_words(backend) == 0


def test_a_pass_that_is_stopped_at_the_head_leaves_it_whole(
    backend: EarlyExitBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = np.arange(30, dtype=np.int32)
    before = backend.forward(text).copy()
    backend.narrow(FEW)
    narrow = NarrowHead.narrow

    def stopped(self: NarrowHead) -> bool:
        backend.stop_flag.put(True)
        return narrow(self)

    with monkeypatch.context() as patch:
        patch.setattr(NarrowHead, "narrow", stopped)
        with pytest.raises(StoppedError):
            backend.forward_early(text)
    backend.stop_flag.put(False)
    head = backend.nodes.head
    assert head is not None
    assert head._node.ne[0] == SHAPE.vocab
    assert np.array_equal(backend.forward(text), before)
    assert (backend.forward_early(text)[0, FEW:] == NEVER).all()


def test_a_head_that_is_another_by_now_is_left_alone(backend: EarlyExitBackend) -> None:
    text = np.arange(30, dtype=np.int32)
    backend.narrow(FEW)
    head = backend.nodes.head
    assert head is not None
    head._n_vocab += 1
    with pytest.raises((ModelError, RuntimeError), match="has changed"):
        backend.forward_early(text)
    assert head._node.ne[0] == SHAPE.vocab


class Memory(dict[str, Any]):
    def read(self) -> dict[str, Any]:
        return self

    def write(self, values: dict[str, Any]) -> None:
        self.update(values)


@pytest.mark.parametrize("pays", [True, False])
def test_few_words_are_taken_where_they_pay_and_remembered(
    pays: bool, backend: EarlyExitBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def worth(text: object, target: EarlyExitBackend, verify: float) -> float:
        return 2.0 if pays == (target.nodes.head is not None) else 1.0

    monkeypatch.setattr(exit_layer, "worth_of", worth)
    monkeypatch.setattr(Neighbours, "are_calm", lambda _: True)
    memo = Memory()
    assert settle(backend, 2, memo) == ""
    assert memo["words"] == (FEW if pays else 0)
    assert (backend.nodes.head is not None) == pays
    backend.narrow(0)
    monkeypatch.setattr(exit_layer, "worth_of", None)  # is not asked again
    settle(backend, 2, memo)
    assert (backend.nodes.head is not None) == pays


def test_what_was_measured_on_a_busy_machine_is_measured_again_when_it_is_calm(
    backend: EarlyExitBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    memo, busy = Memory(), True
    monkeypatch.setattr(Neighbours, "are_calm", lambda _: not busy)
    monkeypatch.setattr(exit_layer, "is_calm", lambda: not busy)
    words = []
    monkeypatch.setattr(exit_layer, "best_words", lambda _: words.pop())
    for busy, measured, kept in [(True, [0], 0), (True, [], 0), (False, [FEW], FEW), (False, [], FEW)]:  # noqa: B007
        words = measured
        settle(backend, 2, memo)
        assert (memo["words"], words) == (kept, [])
        backend.narrow(0)


@pytest.mark.parametrize("sampling", [Sampling(temperature=0), Sampling(temperature=0.8, seed=2)])
def test_replies_are_the_targets_own(path: Path, sampling: Sampling, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exit_layer, "best_words", lambda target: FEW)
    texts = {}
    for names in ((), ("layerskip",)):
        engine = LoadedEngine(Pair("x", path, exit_layer=3), Options(threads=1, n_ctx=256, drafters=names, fixed_k=3))
        chunks = list(engine.reply("w w w", sampling, 40))
        texts[names] = [token for chunk in chunks for token in chunk.tokens]
        if names:
            assert engine.decoder.target.backend.nodes.head.n_words == FEW  # type: ignore[attr-defined]
            assert chunks[-1].stats is not None
            assert chunks[-1].stats.draft_n > 0
        engine.close()
    assert texts[()] == texts["layerskip",]
