"""Where memory is short, sliding windows keep a window's tokens: drafts as long as rejected ones leave no trace."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.instruments.architectures.writer import write_family
from runtime.backends.contexts import WindowedBackend, open_backend
from runtime.backends.model import LlamaModel
from runtime.core.draft import Draft
from runtime.core.pressure import MIB
from runtime.engine import Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.loading import planning
from runtime.loading.fit import Headroom, LoadPlan, PairSpec, fit
from runtime.loading.footprint import ContextSpec
from runtime.models.facts import ModelFacts
from runtime.models.header import read_header
from runtime.models.registry import Pair

N_CTX, N_BATCH = 1024, 64


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_family("gemma3", tmp_path_factory.mktemp("families"))


def test_drafts_and_rewinds_are_exact_past_the_window(file: Path) -> None:
    model = LlamaModel(file)
    live, plain = (open_backend(model, N_CTX, 9, N_BATCH, is_frugal=True) for _ in range(2))
    assert isinstance(live, WindowedBackend)
    assert live.n_rewindable == 256  # window and batch, in whole steps
    rng = np.random.default_rng(3)
    context = rng.integers(4, 250, 30).astype(np.int32)
    for backend in (live, plain):
        backend.set_threads(1, 1)
        backend.forward(context)
    while len(context) < 600:
        k = min(int(rng.integers(0, 9)), max(0, live.n_rewindable - len(context)))
        draft = Draft(tuple(rng.integers(4, 250, k).tolist()))
        before, foretold = live.n_decoded, len(context) - live.n_cached(context) + k
        rows = live.forward(context, draft).copy()
        assert live.n_decoded - before == foretold
        n_taken = int(rng.integers(0, k + 1))
        for i in range(n_taken + 1):
            assert np.array_equal(plain.forward(np.append(context, np.int32(draft.tokens[:i]))), rows[i : i + 1])
        context = np.concatenate([context, np.int32(draft.tokens[:n_taken]), rng.integers(4, 250, 1)]).astype(np.int32)
    edited = np.append(context[:-5], np.int32(9))
    assert live.n_cached(edited) == 0
    assert np.array_equal(live.forward(edited), plain.forward(edited))
    for each in (live, plain, model):
        each.close()


def test_the_window_is_given_up_before_context_and_after_the_draft(file: Path) -> None:
    facts = ModelFacts(read_header(file))
    spec = PairSpec(facts, facts, ContextSpec(32_768, n_rows=13))
    seen = []
    for free in range(200, 0, -2):
        plan = fit(spec, Headroom(free * MIB, 0, 0), "x.gguf") if free * MIB >= least(spec) else None
        if plan and (state := (plan.with_draft, plan.is_frugal, plan.n_ctx == 32_768)) not in seen:
            seen.append(state)
    assert seen == [(True, False, True), (False, False, True), (False, True, True), (False, True, False)]


def least(spec: PairSpec) -> int:
    return spec.frugal().needs(spec.floor, False)


def test_a_reply_past_the_window_ends_its_drafts_and_says_why(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = LoadPlan(N_CTX, True, 0, "memory is short", is_less=True, is_frugal=True)
    monkeypatch.setattr("runtime.loading.open_pair.plan_within", lambda *args: plan)
    monkeypatch.setattr(planning, "TARGET_BATCH", N_BATCH)
    monkeypatch.setattr("runtime.loading.opening.TARGET_BATCH", N_BATCH)
    said = []
    for options in (Options(drafters=(), threads=1), Options(drafters=("ngram",), fixed_k=4, threads=1)):
        engine = LoadedEngine(Pair("x", file), replace(options, n_ctx=N_CTX))
        chunks = list(engine.reply("one two " * 20, Sampling(temperature=0), 300, ("\0",)))
        said.append([token for chunk in chunks for token in chunk.tokens])
        engine.close()
    assert said[0] == said[1]
    stats = chunks[-1].stats
    assert stats is not None
    assert stats.draft_n > 0
    assert stats.reason is not None
    assert (stats.reason.code, "256 tokens" in stats.reason.text) == ("memory", True)


def test_a_draft_models_context_for_several_replies_can_be_opened(file: Path) -> None:
    model = LlamaModel(file)
    backend = open_backend(model, N_CTX, 1, N_BATCH, n_seats=3)
    assert backend.forward(np.arange(4, 20, dtype=np.int32)).shape == (1, backend.n_vocab)
    backend.close()
    model.close()
