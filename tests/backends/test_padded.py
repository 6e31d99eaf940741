"""Passes that are all padded to one width, which devices need whose kernels round by width."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from runtime.backends import library
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.backends.shared import SharedBackend
from runtime.core.draft import NO_DRAFT, Draft, Logits, Tokens
from runtime.engine import Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.loading import profile
from runtime.loading.exactness import STRETCH, Exactness
from runtime.models.registry import load_registry
from runtime.speculative.control.costs import PassCosts
from tests.support.quick import others_slow

N_CTX, ROWS = 300, 6
GREEDY, SEEDED = Sampling(temperature=0, seed=3), Sampling(temperature=0.8, seed=3)
DEMO = load_registry()["demo"]


@pytest.fixture(scope="module")
def model() -> Iterator[LlamaModel]:
    found = LlamaModel(DEMO.target)
    yield found
    found.close()


@pytest.fixture(params=[LlamaBackend, SharedBackend])
def padded(model: LlamaModel, request: pytest.FixtureRequest) -> Iterator[LlamaBackend]:
    backend = request.param(model, N_CTX, 9, 64)
    backend.pad(ROWS)
    yield backend
    backend.close()


@pytest.fixture(scope="module")
def plain(model: LlamaModel) -> Iterator[LlamaBackend]:
    backend = LlamaBackend(model, N_CTX, 9, 64)
    yield backend
    backend.close()


@pytest.mark.slow
def test_what_is_padded_leaves_nothing(padded: LlamaBackend, plain: LlamaBackend) -> None:
    """These kernels round alike at every width, so the logits are those of passes without it, whatever came before."""
    rng = np.random.default_rng(3)
    text = rng.integers(0, plain.n_vocab, N_CTX).astype(np.int32)
    for _ in range(60):
        n, k = int(rng.integers(1, N_CTX - 8)), int(rng.integers(0, 9))
        context = np.concatenate([text[: n - 1], rng.integers(0, plain.n_vocab, 1)]).astype(np.int32)
        draft = Draft(tuple(rng.integers(0, plain.n_vocab, k).tolist()))
        assert np.array_equal(padded.forward(context, draft), plain.forward(context, draft))


def test_every_pass_has_its_rows(padded: LlamaBackend) -> None:
    text = np.arange(N_CTX, dtype=np.int32)
    padded.forward(text[:50])
    for context, draft, rows in (
        (text[:51], NO_DRAFT, ROWS),
        (text[:52], Draft((1, 2)), ROWS),
        (text[:53], Draft((1,) * 7), 8),
        (text[:56], NO_DRAFT, ROWS),  # three at once, as a reply is read again
        (text[: N_CTX - 60], NO_DRAFT, N_CTX - 60 - 57 + ROWS),
    ):
        before = padded.n_decoded
        padded.forward(context, draft)
        assert padded.n_decoded - before == rows


def test_at_the_end_of_the_context_there_is_no_room(padded: LlamaBackend, plain: LlamaBackend) -> None:
    text = np.arange(N_CTX, dtype=np.int32)
    for n in range(N_CTX - ROWS, N_CTX + 1):
        assert np.array_equal(padded.forward(text[:n]), plain.forward(text[:n]))


def test_all_rows_of_a_pass_look_at_as_much_of_the_cache_as_each_by_itself() -> None:
    found = Exactness(8, 13, padded=8)

    def end(n_context: int) -> tuple[int, int]:
        """How much of the cache a pass looks at that begins with the last token, and how many rows it has."""
        last = min(n_context - 1 + 8, 1000)
        return -(-last // STRETCH), last - (n_context - 1)

    for n in range(1, 1000):
        rows = found.rows_at(n, 1000)
        assert 1 <= rows <= 8
        assert {end(n + i) for i in range(rows)} == {end(n)}
        assert rows == 8 or end(n + rows) != end(n)
    assert Exactness(3, 13).rows_at(500, 1000) == 3


class ByWidth(LlamaBackend):
    """As a GPU's kernels: what a row gives depends on how many rows are computed and how much of the cache is read."""

    def _decode_chain(self, start: int, end: int, n_outputs: int, most: int | None = None) -> None:
        self.seen = end - start, -(-end // STRETCH)
        super()._decode_chain(start, end, n_outputs, most)

    def _run(self, batch: object, start: int, n_held: int) -> None:
        self.seen = n_held - start, -(-n_held // STRETCH)
        super()._run(batch, start, n_held)

    def forward(self, context: Tokens, draft: Draft = NO_DRAFT, exact: bool = True) -> Logits:
        logits = super().forward(context, draft, exact)
        return logits + np.random.default_rng(self.seen).normal(0, 6, self.n_vocab).astype(np.float32)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A device whose kernels round by width, grossly, and on which wider passes cost nothing."""
    monkeypatch.setattr(library, "has_gpu", lambda: True)
    monkeypatch.setattr("runtime.backends.contexts.LlamaBackend", ByWidth)
    monkeypatch.setattr(PassCosts, "up_to", lambda self, width, n_context: [1.0] * width)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def said(sampling: Sampling, **options: object) -> tuple[tuple[int, ...], int, LoadedEngine]:
    engine = LoadedEngine(DEMO, Options(threads=1, n_ctx=600, **options))  # type: ignore[arg-type]
    try:
        prompt = "What does os.path.join do? " * 22  # so that the reply passes a stretch of the cache
        chunks = list(engine.reply(prompt, sampling, 90))
        n_drafted = sum(made.n_drafted for made in engine.passes())
        return tuple(token for chunk in chunks for token in chunk.tokens), n_drafted, engine
    finally:
        engine.close()


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("sampling", others_slow([GREEDY, SEEDED], [GREEDY]))
def test_a_text_is_the_same_with_and_without_drafts(sampling: Sampling) -> None:
    plain, _, _ = said(sampling, drafters=())
    drafted = 0
    for options in ({"fixed_k": 3}, {"fixed_k": 7}, {"drafters": ("ngram",)}, {"max_k": 4}):
        text, n_drafted, engine = said(sampling, **options)
        assert engine.facts.exactness.padded == 8
        assert text == plain
        drafted += n_drafted
    assert drafted > 60


@pytest.mark.usefixtures("gpu")
def test_where_wider_passes_cost_something_none_is_padded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "COSTS_NOTHING", 0.5)
    _, n_drafted, engine = said(GREEDY)
    assert (engine.facts.exactness.padded, engine.facts.exactness.width, n_drafted) == (0, 1, 0)
