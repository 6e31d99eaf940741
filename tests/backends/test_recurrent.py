"""Recurrent states cannot be cut, but rejected drafts are undone exactly, and a text is taken up again where it was
likely to be.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from bench.instruments.architectures.families import FAMILIES
from bench.instruments.architectures.writer import write_drafting, write_family
from runtime.backends.contexts import RecurrentBackend, open_backend
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.core.draft import Draft, Tokens
from runtime.engine import Message, Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.models.cache_layout import SNAPSHOTTED
from runtime.models.registry import Pair

N_CTX = 512
HYBRID, PURE = "qwen35", "mamba2"  # with snapshots, and without
GREEDY = Sampling(temperature=0)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("families")
    return {name: write_family(name, folder) for name in (HYBRID, PURE)}


@pytest.fixture(scope="module", params=[HYBRID, PURE])
def model(request: pytest.FixtureRequest, files: dict[str, Path]) -> Iterator[LlamaModel]:
    model = LlamaModel(files[request.param])
    yield model
    model.close()


@pytest.fixture
def hybrid(files: dict[str, Path]) -> Iterator[RecurrentBackend]:
    model = LlamaModel(files[HYBRID])
    backend = opened(model)
    yield backend
    backend.close()
    model.close()


def opened(model: LlamaModel, n_rows: int = 9) -> RecurrentBackend:
    backend = open_backend(model, N_CTX, n_rows, 256)
    assert isinstance(backend, RecurrentBackend)
    backend.set_threads(1, 1)
    return backend


def text(n: int, seed: int = 1) -> Tokens:
    return np.random.default_rng(seed).integers(4, 250, n).astype(np.int32)


def decoded(backend: LlamaBackend, context: Tokens, draft: Draft | None = None) -> int:
    """Rows that a pass took, which are those that were foretold."""
    before, foretold = backend.n_decoded, len(context) - backend.n_cached(context) + len(draft or ())
    backend.forward(context, draft or Draft())
    assert backend.n_decoded - before == foretold
    return foretold


def is_as_new(backend: LlamaBackend, context: Tokens) -> bool:
    """Does that context have the logits that it has in a cache that never held another?"""
    found = backend.forward(context).copy()
    fresh = open_backend(backend.model, N_CTX, 9, 256)
    fresh.set_threads(1, 1)
    same = bool(np.array_equal(found, fresh.forward(context)))
    fresh.close()
    return same


@pytest.mark.parametrize("accepted", [0, 3, 8])
def test_a_rejected_draft_is_undone_without_reading_anything_again(hybrid: RecurrentBackend, accepted: int) -> None:
    prompt, draft = text(60), tuple(text(8, seed=2).tolist())
    hybrid.forward(prompt, Draft(draft))
    after = np.concatenate([prompt, np.array(draft[:accepted], dtype=np.int32), text(1, seed=3)])
    assert decoded(hybrid, after) == 1
    assert is_as_new(hybrid, np.concatenate([after, text(1, seed=4)]))


def test_what_only_the_library_believes_it_can_drop_is_read_again(hybrid: RecurrentBackend) -> None:
    context = text(60)
    hybrid.forward(context)
    for i in range(5):  # passes of one row, whose snapshots each overwrite the last one's
        context = np.concatenate([context, text(1, seed=10 + i)])
        hybrid.forward(context)
    other = np.concatenate([context[:-3], text(1, seed=3)])
    assert decoded(hybrid, other) > 4
    assert is_as_new(hybrid, np.concatenate([other, text(2, seed=4)]))


def test_snapshots_serve_once(hybrid: RecurrentBackend) -> None:
    prompt = text(60)
    hybrid.forward(prompt, Draft(tuple(text(8, seed=2).tolist())))
    assert hybrid.n_cached(np.concatenate([prompt, text(1, seed=3)])) == len(prompt)
    hybrid.forward(np.concatenate([prompt, text(1, seed=3)]))
    assert hybrid.n_cached(np.concatenate([prompt, text(1, seed=5)])) < len(prompt)


def test_a_reply_made_again_reads_only_the_end_of_its_prompt(model: LlamaModel) -> None:
    backend, prompt = opened(model), text(300)
    backend.forward(prompt)
    for i in range(40):
        backend.forward(np.concatenate([prompt, text(i + 1, seed=2)]))
    assert decoded(backend, prompt) <= 32
    assert is_as_new(backend, np.concatenate([prompt, text(3, seed=5)]))
    backend.close()


def test_an_edited_message_is_read_from_the_end_of_the_one_before(model: LlamaModel) -> None:
    backend, end = opened(model), next(token for token in range(600) if model.vocab.ends[token])
    messages = [np.append(text(60, seed=i), np.int32(end)) for i in range(4)]
    backend.forward(np.concatenate([*messages, text(6)]))
    edited = np.concatenate([*messages[:3], text(60, seed=9), text(6)])
    assert decoded(backend, edited) == 66
    assert is_as_new(backend, np.append(edited, np.int32(7)))
    backend.close()


def test_a_conversation_that_was_put_away_comes_back_with_its_copies(model: LlamaModel) -> None:
    backend, first, second = opened(model), text(200), text(150, seed=2)
    backend.set_slots(2)
    backend.forward(first)
    backend.forward(second)
    assert decoded(backend, np.append(first, np.int32(9))) == 1
    assert decoded(backend, np.append(first[:-4], np.int32(9))) <= 32
    assert decoded(backend, np.append(second, np.int32(9))) == 1
    backend.close()


def test_a_draft_model_of_this_kind_reads_only_what_it_had_not_seen(model: LlamaModel) -> None:
    backend, context = opened(model, n_rows=1), text(80)
    backend.forward(context)
    for step in range(4):
        guesses = text(5, seed=20 + step)
        for i in range(5):
            backend.forward(np.concatenate([context, guesses[: i + 1]]))
        context = np.concatenate([context, guesses[:2], text(1, seed=40 + step)])
        assert decoded(backend, context) <= 4
    assert is_as_new(backend, np.append(context, np.int32(3)))
    backend.close()


def test_a_hybrid_says_the_same_with_a_hybrid_draft(files: dict[str, Path]) -> None:
    said = []
    for options in (Options(drafters=(), threads=1), Options(drafters=("model", "ngram"), fixed_k=4, threads=1)):
        engine = LoadedEngine(Pair("x", files[HYBRID], draft=files[HYBRID]), options)
        chunks = list(engine.reply([Message("user", "hello " * 20)], GREEDY, 40, ("\0",)))
        said.append([token for chunk in chunks for token in chunk.tokens])
        engine.close()
    assert said[0] == said[1]
    assert chunks[-1].stats is not None
    assert chunks[-1].stats.draft_n_accepted > 0


def test_what_cannot_be_undone_is_not_drafted(files: dict[str, Path]) -> None:
    engine = LoadedEngine(Pair("x", files[PURE], draft=files[PURE]), Options(threads=1))
    *_, last = engine.reply("hello", GREEDY, 8)
    assert last.stats is not None
    assert last.stats.reason is not None
    assert (last.stats.draft_n, last.stats.reason.code) == (0, "architecture")
    assert not engine.facts.can_draft
    engine.close()


# Rows of the passes since a prompt of 60 tokens, then tokens that are gone back by, one rewind after another
REWINDS: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((5,), (4,)),
    ((5,), (2,)),
    ((5,), (5,)),
    ((1, 1, 1, 1, 1), (1,)),
    ((3, 2), (1,)),
    ((3, 2), (2,)),
    ((3, 2), (4,)),
    ((5,), (2, 1)),
    ((), (3,)),
]
SNAPSHOT_FAMILIES = [name for name, family in FAMILIES.items() if family.architecture in SNAPSHOTTED]


def can_drop(passes: tuple[int, ...], back: tuple[int, ...], n_snapshots: int) -> bool:
    """The library's snapshots are those of the last pass's rows, and serve once."""
    rows = passes[-1] if passes else 60
    return len(back) == 1 and back[0] <= min(n_snapshots, rows - 1)


@pytest.mark.parametrize("name", SNAPSHOT_FAMILIES)
def test_rows_that_can_be_dropped_are_counted_as_the_library_keeps_them(name: str, tmp_path: Path) -> None:
    model = LlamaModel(write_drafting(name, tmp_path))
    for passes, back in REWINDS:
        backend = opened(model, n_rows=5)
        context = text(60)
        backend.forward(context)
        for i, rows in enumerate(passes):
            context = np.concatenate([context, text(rows, seed=10 + i)])
            backend.forward(context)
        for i, n in enumerate(back):
            context = np.concatenate([context[: len(context) - n], text(1, seed=30 + i)])
            n_read = decoded(backend, context)
        assert (n_read == 1) is can_drop(passes, back, backend.n_snapshots), (passes, back)
        found, fresh = backend.forward(context).copy(), opened(model, n_rows=5)
        expected = fresh.forward(context)
        assert np.abs(found - expected).max() < 0.1 * expected.std(), (passes, back)
        for each in (fresh, backend):
            each.close()
    model.close()
