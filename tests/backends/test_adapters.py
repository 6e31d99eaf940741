"""LoRA adapters: the logits of merged weights, no shared cache, the same text with any drafter, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from bench.instruments.shapes import TINY
from runtime.backends.contexts import open_backend
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.backends.shared import SharedBackend
from runtime.backends.stored import prefix_store
from runtime.core.draft import Adapters, Draft, Logits, PassInput, Tokens
from runtime.core.errors import SettingsError, StoppedError
from runtime.engine import Ids, Options, Sampling, stored_states
from runtime.engine.engine import Ask
from runtime.engine.loaded import LoadedEngine
from runtime.engine.stored_states import Worth
from runtime.models.adapters import Adapter
from runtime.models.registry import Pair
from runtime.speculative.control.acceptance import Acceptances
from tests.support.adapters import write_adapter, write_base

FIRST, SECOND = (1, 8), (2, 1)  # seed and rank of both adapters
CLOSE = 2e-5  # of logits up to 5, which are summed in another order


def tokens(seed: int, n: int) -> Tokens:
    return np.random.default_rng(seed).integers(0, TINY.vocab, n).astype(np.int32)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_base(tmp_path_factory.mktemp("adapted") / "base.gguf")


@pytest.fixture(scope="module")
def first(base: Path) -> Path:
    return write_adapter(base.with_name("first.gguf"), *FIRST)


@pytest.fixture(scope="module")
def second(base: Path) -> Path:
    return write_adapter(base.with_name("second.gguf"), *SECOND)


@pytest.fixture(scope="module")
def model(base: Path, first: Path, second: Path) -> Iterator[LlamaModel]:
    opened = LlamaModel(base)
    opened.load_adapters([Adapter(first), Adapter(second, 0.0)])
    yield opened
    opened.close()


def of(model: LlamaModel, one: float = 0.0, two: float = 0.0) -> Adapters:
    return model.adapters.named({0: one, 1: two})


def backend(model: LlamaModel, n_seats: int = 1) -> LlamaBackend:
    opened = open_backend(model, 128, 9, 64, n_seats=n_seats)
    opened.set_threads(1, 1)
    opened.set_slots(4)
    return opened


def merged(base: Path, *scales: float) -> Logits:
    """The logits after a text with weights that have an adapter's numbers in them."""
    own = [(*each, scale) for each, scale in zip((FIRST, SECOND), scales, strict=True) if scale]
    model = LlamaModel(write_base(base.with_name("merged.gguf"), own))
    context = backend(model)
    logits = context.forward(tokens(0, 40)).copy()
    context.close()
    model.close()
    return logits


@pytest.mark.parametrize("scales", [(0.5, 0.0), (0.0, 1.0), (1.0, -1.5), (0.0, 0.0)])
def test_logits_are_those_of_weights_with_the_same_numbers(
    model: LlamaModel, base: Path, scales: tuple[float, float]
) -> None:
    context = backend(model)
    context.use(of(model, *scales))
    np.testing.assert_allclose(context.forward(tokens(0, 40)), merged(base, *scales), atol=CLOSE)
    context.close()


@pytest.mark.parametrize("n_seats", [1, 3])
def test_a_cached_text_is_reused_only_with_the_same_adapters(model: LlamaModel, n_seats: int) -> None:
    text, context = tokens(0, 60), backend(model, n_seats)
    plain = context.forward(text).copy()
    for adapters in (of(model, 1.0), of(model, 0.5), of(model, 0.0, 1.0)):
        context.use(adapters)
        assert context.n_cached(text) == 0
        assert np.abs(context.forward(text) - plain).max() > 0.1
        assert context.n_cached(np.append(text, 1).astype(np.int32)) == 60
    context.use(())
    assert context.n_cached(text) == 59  # its conversation was kept
    np.testing.assert_allclose(context.forward(text), plain, atol=CLOSE)
    context.close()


def test_a_read_that_was_stopped_is_of_its_own_adapters(model: LlamaModel) -> None:
    text, context = tokens(0, 60), backend(model)
    context.set_slots(1)
    context.forward(text)
    context.use(of(model, 1.0))
    context.stop_flag.put(True)
    with pytest.raises(StoppedError):
        context.forward(text)
    context.stop_flag.put(False)
    context.use(())
    assert context.n_cached(text) == 0
    context.close()


def test_a_pass_of_several_has_the_adapters_of_all(model: LlamaModel) -> None:
    texts, adapters = [tokens(1, 30), tokens(2, 20)], of(model, 1.0)
    alone, shared = backend(model), backend(model, 3)
    assert isinstance(shared, SharedBackend)
    shared.use(())
    shared.forward_all([PassInput(each) for each in texts])
    for context in (alone, shared):
        context.use(adapters)
    together = shared.forward_all([PassInput(each, Draft((3, 4)), True, adapters) for each in texts])
    for text, rows in zip(texts, together, strict=True):
        np.testing.assert_allclose(rows, alone.forward(text, Draft((3, 4))), atol=CLOSE)
    alone.close()
    shared.close()


def reply(engine: LoadedEngine, lora: tuple[tuple[int, float], ...] | None = None, seed: int | None = 3) -> list[int]:
    sampling = Sampling(temperature=0.8 if seed else 0.0, seed=seed)
    chunks = engine.reply(Ids(tuple(tokens(0, 40).tolist())), sampling, 24, lora=lora)
    return [token for chunk in chunks for token in chunk.tokens]


def opened(base: Path, adapters: tuple[Adapter, ...], draft: Path | None = None, **options: object) -> LoadedEngine:
    known = {"n_ctx": 256, "threads": 1, "drafters": (), "slots": 3} | options
    return LoadedEngine(Pair("any", base, draft, lora=adapters), Options(**known))  # type: ignore[arg-type]


@pytest.mark.parametrize("drafters", [("model",), ("ngram", "suffix"), ("lookahead",)])
def test_a_text_for_a_seed_is_that_of_plain_decode(base: Path, first: Path, drafters: tuple[str, ...]) -> None:
    adapters = (Adapter(first),)
    plain = opened(base, adapters)
    expected = reply(plain)
    plain.close()
    fixed = opened(base, adapters, base if "model" in drafters else None, drafters=drafters, fixed_k=3)
    assert reply(fixed) == expected
    fixed.close()


def test_a_draft_model_without_the_adapter_drafts(base: Path, first: Path) -> None:
    engine = opened(base, (Adapter(first, 0.1),), base, drafters=("model",), fixed_k=3, fast=True)
    chunks = list(engine.reply(Ids(tuple(tokens(0, 40).tolist())), Sampling(temperature=0.0), 24))
    assert chunks[-1].stats is not None
    assert chunks[-1].stats.draft_n > 0
    engine.close()


def test_each_request_names_its_adapters(base: Path, first: Path, second: Path) -> None:
    engine = opened(base, (Adapter(first, 0.5), Adapter(second, 0.0)))
    usual, one, two, none = (reply(engine, lora) for lora in (None, ((0, 1.0),), ((1, 1.0),), ()))
    assert usual == reply(engine, ((0, 0.5),))
    assert [one, two, none] == [
        reply(engine, ((0, 1.0), (1, 0.0))),
        reply(engine, ((1, 1.0),)),
        reply(engine, ((0, 0.0),)),
    ]
    assert len({tuple(each) for each in (usual, one, two, none)}) == 4
    for lora, said in (
        (((2, 1.0),), "lora names the adapter 2, but ids go from 0 to 1."),
        (((0, float("nan")),), "the scale of adapter 0 is nan: it must be a number."),
    ):
        with pytest.raises(SettingsError) as caught:
            reply(engine, lora)
        assert str(caught.value).lower() == said.lower()
    engine.close()


def test_sequences_with_other_adapters_say_at_once_what_each_says_alone(base: Path, first: Path, second: Path) -> None:
    engine = opened(base, (Adapter(first, 0.0), Adapter(second, 0.0)), slots=4)
    wishes: list[tuple[tuple[int, float], ...]] = [(), ((0, 1.0),), ((0, 0.3),), ((1, 1.0),), ((0, 1.0),)]
    alone = [reply(engine, lora) for lora in wishes]
    found: dict[int, list[int]] = {i: [] for i in range(len(wishes))}
    prompt = Ids(tuple(tokens(0, 40).tolist()))
    for i, lora in enumerate(wishes):
        ask = Ask(prompt, Sampling(temperature=0.8, seed=3), 24, lora=lora)
        engine.add(ask, lambda came, i=i: found[i].extend(getattr(came, "tokens", ())))  # type: ignore[misc]
    while not engine.is_idle:
        engine.step()
    assert [found[i] for i in range(len(wishes))] == alone
    engine.close()


def test_a_stored_prompt_is_of_its_adapters(
    base: Path, first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefix_store, "folder", lambda: tmp_path)
    monkeypatch.setattr(stored_states, "THRESHOLDS", Worth(seconds=0.0, gain=0.0))

    def cached(lora: tuple[tuple[int, float], ...]) -> tuple[int, list[int]]:
        engine = opened(base, (Adapter(first),), prompt_bytes=10**9)
        prompt = Ids(tuple(tokens(0, 100).tolist()))
        *chunks, last = engine.reply(prompt, Sampling(temperature=0.0, seed=1), 8, lora=lora)
        engine.close()
        assert last.stats is not None
        return last.stats.cached_n, [token for chunk in chunks for token in chunk.tokens]

    wishes: list[tuple[tuple[int, float], ...]] = [(), ((0, 1.0),), ((0, 0.5),)]
    read = [cached(wish) for wish in wishes]
    assert [n for n, _ in read] == [0, 0, 0]
    again = [cached(wish) for wish in wishes]
    assert all(n > 64 for n, _ in again)
    assert [text for _, text in again] == [text for _, text in read]


def test_acceptance_is_learned_apart_and_kept() -> None:
    known = Acceptances()
    before = known.current.rate
    known.use((("a", 1.0),))
    for _ in range(50):
        known.current.observe([0.5], 0, 1)
    assert known.current.rate < before / 2
    next_start = Acceptances()
    next_start.restore(known.state())
    assert next_start.current.rate == before
    next_start.use((("a", 1.0),))
    assert next_start.current.rate < before / 2
