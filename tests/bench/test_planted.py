"""Planted pairs: the target follows its walk, the draft agrees as often as was asked, and only their agreement is
planted.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from bench.instruments.planted import plant, prompts, walk
from bench.instruments.shapes import FILE_TYPES, Shape
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.engine import Chunk, Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.models.registry import Pair
from runtime.sampling.logits import softmax

TARGET = Shape(width=128, layers=2, heads=2, kv_heads=1, ffn=256, vocab=2048)
DRAFT = replace(TARGET, layers=1)
WALK = walk(TARGET.vocab).tolist()
K = 3
PLAIN = Options(drafters=(), threads=1)  # given threads need no measuring
DRAFTED = Options(drafters=("model",), fixed_k=K, max_k=K, threads=1)
GREEDY, SEEDED = Sampling(temperature=0), Sampling(temperature=0.8, seed=4)


def reply(pair: Pair, sampling: Sampling, n: int, options: Options = DRAFTED) -> list[Chunk]:
    with closing(LoadedEngine(pair, options)) as engine:
        return list(engine.reply("Go", sampling, max_tokens=n))


def tokens(chunks: list[Chunk]) -> list[int]:
    return [token for chunk in chunks for token in chunk.tokens]


def acceptance(chunks: list[Chunk]) -> float:
    """Accepted / tried: of a draft, those tokens count whose predecessors were accepted."""
    accepted = [sum(chunk.drafted) for chunk in chunks if chunk.tokens]
    return sum(accepted) / sum(min(n + 1, K) for n in accepted)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return plant(tmp_path_factory.mktemp("planted"), TARGET, DRAFT, 0.7)


def test_the_target_follows_the_walk_and_begins_it_again(tmp_path: Path) -> None:
    short = plant(tmp_path, TARGET, DRAFT, 0.7, words=200)
    chunks = reply(short, GREEDY, 500, options=PLAIN)
    assert tokens(chunks) == (3 * walk(TARGET.vocab, 200).tolist())[:500]
    assert chunks[-1].finish_reason == "length"


def test_text_is_split_back_into_its_tokens_and_a_prompt_goes_on_from_its_last_word(pair: Pair) -> None:
    with closing(LoadedEngine(pair, PLAIN)) as engine:
        chunks = list(engine.reply("Go", GREEDY, max_tokens=100))
        text = "".join(chunk.text for chunk in chunks)
        assert engine.encode(text) == tokens(chunks) == WALK[:100]
        assert text.isascii()
        assert text.isprintable()
        assert tokens(list(engine.reply("Go" + text, GREEDY, max_tokens=20))) == WALK[100:120]


def test_prompts_begin_at_places_of_the_walk(pair: Pair) -> None:
    with closing(LoadedEngine(pair, PLAIN)) as engine:
        for place, prompt in zip((0, 7, 200), prompts(TARGET.vocab, (0, 7, 200)), strict=True):
            assert tokens(list(engine.reply(prompt, GREEDY, max_tokens=10))) == WALK[place + 1 : place + 11]


@pytest.mark.parametrize("asked", [0.3, 0.5, 0.7, 0.9])
def test_acceptance_is_what_was_asked(tmp_path: Path, asked: float) -> None:
    """Within 0.05, two standard deviations of its chance over so few tokens."""
    assert acceptance(reply(plant(tmp_path, TARGET, DRAFT, asked), GREEDY, 600)) == pytest.approx(asked, abs=0.05)


def test_acceptance_is_much_the_same_when_sampled(pair: Pair) -> None:
    assert acceptance(reply(pair, SEEDED, 600)) == pytest.approx(0.7, abs=0.07)


def test_acceptance_collapses_where_it_was_asked_to(tmp_path: Path) -> None:
    change = 300
    chunks = reply(plant(tmp_path, TARGET, DRAFT, (0.9, 0.1), change=change), GREEDY, 2 * change)
    ends = np.cumsum([len(chunk.tokens) for chunk in chunks])
    before = [chunk for chunk, end in zip(chunks, ends, strict=True) if end <= change]
    after = [chunk for chunk, end in zip(chunks, ends, strict=True) if end - len(chunk.tokens) > change]
    assert acceptance(before) == pytest.approx(0.9, abs=0.05)
    assert acceptance(after) == pytest.approx(0.1, abs=0.05)


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED])
def test_drafts_do_not_change_the_text(pair: Pair, sampling: Sampling) -> None:
    drafted, plain = (tokens(reply(pair, sampling, 300, options=options)) for options in (DRAFTED, PLAIN))
    assert drafted == plain
    assert len(plain) == 300


def test_sampling_skips_words_as_often_as_was_asked(tmp_path: Path) -> None:
    planted = plant(tmp_path, TARGET, DRAFT, 0.7, likely=0.6)
    places = [
        WALK.index(token) for token in tokens(reply(planted, Sampling(1.0, 0, 1.0, 0.0, seed=1), 1000, options=PLAIN))
    ]
    steps = np.diff(places) % len(WALK)
    assert (steps == 1).mean() == pytest.approx(0.6, abs=0.05)
    assert (steps <= 3).mean() > 0.97


def confidences(path: Path, n: int) -> tuple[list[float], list[float]]:
    """The probability of the draft's likeliest token after each of the walk's first words: where it is right, where it
    is wrong.
    """
    found: tuple[list[float], list[float]] = [], []
    model = LlamaModel(path)
    backend = LlamaBackend(model, 64)
    for word, following in pairwise(WALK[: n + 1]):
        row = backend.forward(np.array([word], dtype=np.int32))[0]
        found[int(row.argmax()) != following].append(float(softmax(row, 1.0).max()))
    backend.close()
    model.close()
    return found


def test_confidence_tells_where_the_draft_is_right_only_when_asked(tmp_path: Path) -> None:
    drops = []
    for hesitation in (0.0, 0.7):
        draft = plant(tmp_path, TARGET, DRAFT, 0.5, hesitation=hesitation).draft
        assert draft is not None
        right, wrong = confidences(draft, 400)
        assert min(len(right), len(wrong)) > 100
        drops.append(np.mean(right) - np.mean(wrong))
    assert abs(drops[0]) < 0.01
    assert drops[1] > 0.3


def test_a_seed_decides_every_byte(tmp_path: Path) -> None:
    first, same, other = (
        plant(tmp_path / name, TARGET, DRAFT, 0.7, seed=seed) for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    for path in ("target", "draft"):
        data = getattr(first, path).read_bytes()
        assert data == getattr(same, path).read_bytes()
        assert data != getattr(other, path).read_bytes()


@pytest.mark.parametrize("name", ["Q4_K_M", "F16"])
def test_other_file_types_hold_the_same_walk(tmp_path: Path, name: str) -> None:
    shape = replace(TARGET, width=256, heads=4)
    planted = plant(tmp_path, shape, shape, 0.7, file_type=FILE_TYPES[name])
    chunks = reply(planted, GREEDY, 300, options=replace(DRAFTED, fast=True))  # kernels may round by width
    assert tokens(chunks) == WALK[:300]
    assert acceptance(chunks) == pytest.approx(0.7, abs=0.1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["draft.gguf", "target.gguf"]
