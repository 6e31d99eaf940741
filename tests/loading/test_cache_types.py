"""Keys and values in F16 where that is faster: the choice, its cost, and that replies with a seed stay the same."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from app.models import info, pair, seeking
from bench.instruments.concurrent_replies import Concurrent, alone
from runtime.backends.filled import FilledContext
from runtime.backends.model import LlamaModel
from runtime.backends.pass_switches import Attention
from runtime.core.errors import ModelError
from runtime.core.pressure import MIB, MemoryPool, Reading
from runtime.engine import Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.loading import cache_types, open_pair, profile
from runtime.loading.cache_types import CacheTrial, fastest
from runtime.loading.exactness import sample, worst
from runtime.loading.neighbours import Neighbours
from runtime.loading.planning import pair_spec, plan_of, plan_with_halves
from runtime.models.cache_layout import HALVES
from runtime.models.registry import load_registry

DEMO = load_registry()["demo"]
TEXT = "The keeper of the lamp wrote: def add(a, b): return a + b. "
N_FILLED = 512  # cells past which ggml divides the attention of a single row


@pytest.fixture(scope="module")
def model() -> Iterator[LlamaModel]:
    with closing(LlamaModel(DEMO.target)) as found:
        yield found


@pytest.fixture
def filled(model: LlamaModel) -> Iterator[FilledContext]:
    with closing(FilledContext(model, HALVES, 1024, 64, 2)) as context:
        context.fill(sample(model.vocab, 8), N_FILLED)
        yield context


@pytest.fixture(scope="module")
def engines() -> Iterator[tuple[LoadedEngine, LoadedEngine]]:
    """With F16, without drafts and with copies of earlier text as drafts."""
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setattr(open_pair, "fastest", lambda *_: HALVES)
        options = [Options(drafters=(), slots=3), Options(drafters=("ngram",), fixed_k=6, slots=3)]
        plain, drafted = (stack.enter_context(closing(LoadedEngine(DEMO, each))) for each in options)
        yield plain, drafted


def said(engine: LoadedEngine, text: str, sampling: Sampling) -> list[int]:
    return [token for chunk in engine.reply(text, sampling, 40) for token in chunk.tokens]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_seed_says_the_same_with_drafts_whatever_was_read_before(
    engines: tuple[LoadedEngine, LoadedEngine], seed: int
) -> None:
    plain, drafted = engines
    assert plain.facts.exactness.width == plain.facts.exactness.tried
    assert not plain.facts.exactness.prefill
    text, sampling = TEXT * 60 + str(seed), Sampling(temperature=0.7, seed=seed)
    expected = said(plain, text, sampling)
    said(drafted, text[:-300] + "Else", Sampling(temperature=1.0))  # in blocks
    assert said(drafted, text, sampling) == expected
    said(plain, text, Sampling(temperature=1.0))
    assert said(plain, text, sampling) == expected


def test_replies_beside_others_are_those_they_are_alone(engines: tuple[LoadedEngine, LoadedEngine]) -> None:
    """Two with seeds, while prompts of replies without one are read in blocks, and decoded in passes that read."""
    seeded = [(TEXT * n, Sampling(temperature=0.7, seed=n), None) for n in (9, 30)]
    free = [(f"{n} " + TEXT * 50, Sampling(temperature=1.0), None) for n in (1, 2)]
    for engine in engines:
        expected = alone(engine, seeded, 24)
        together = Concurrent(engine)
        told = [together.add(case, 24) for case in (free[0], *seeded, free[1])]
        together.until(lambda told=told: all(each.is_over for each in told))  # type: ignore[misc]
        assert [each.tokens for each in told[1:3]] == expected
        assert all(len(each.tokens) for each in told)


def test_a_single_row_rounds_as_one_of_some_in_a_long_context(filled: FilledContext, model: LlamaModel) -> None:
    text = sample(model.vocab, 8)
    alone = [filled.decode(text[i : i + 1], 1)[0] for i in range(4)]
    filled.drop(4)
    assert worst(filled.decode(text, 4), alone) == 0


def test_without_the_switch_the_self_test_finds_the_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Attention, "prepare", lambda *_: None)
    monkeypatch.setattr(open_pair, "fastest", lambda *_: HALVES)
    with closing(LoadedEngine(DEMO, Options(drafters=()))) as engine:
        assert engine.facts.exactness.width == 1
        assert engine.facts.exactness.difference > 0


def test_a_filled_context_is_as_long_and_takes_more(model: LlamaModel, filled: FilledContext) -> None:
    assert filled._n_cells == N_FILLED
    with closing(FilledContext(model, HALVES, 256, 8, 1)) as short:
        short.fill(sample(model.vocab, 8), 7)  # no copy fits
        assert short._n_cells == 8
        short.fill(sample(model.vocab, 8), 256)
        with pytest.raises(ModelError, match="could not decode"):
            short.decode(sample(model.vocab, 8), 0)  # it is full


@pytest.mark.parametrize(
    ("reading", "decoding", "prefers"),
    [(1.5, 1.0, True), (1.5, 0.93, True), (1.1, 0.95, False), (1.0, 1.0, False), (0.95, 1.2, True), (2.0, 0.65, False)],
)
def test_what_counts_is_the_time_of_a_turn_with_a_long_prompt(reading: float, decoding: float, prefers: bool) -> None:
    assert CacheTrial(reading, decoding).prefers_halves is prefers


def test_the_trial_is_made_once_and_where_it_can_be(monkeypatch: pytest.MonkeyPatch, model: LlamaModel) -> None:
    trials, usual = [CacheTrial(2.0, 1.0)], model.cache_types
    monkeypatch.setattr(Neighbours, "busy_cores", lambda _: 0.0)
    monkeypatch.setattr(cache_types, "compare", lambda *_: trials.pop())
    assert usual != HALVES
    assert fastest(model, cache_types.LEAST_FAR) == usual  # too short a context
    assert [fastest(model, 8192), fastest(model, 8192)] == [HALVES, HALVES]
    for facts in ({"is_recurrent": True}, {"window": 512}, {"path": Path("gone")}):
        other = {"is_recurrent": False, "window": 0, "path": model.path, "cache_types": usual} | facts
        assert fastest(SimpleNamespace(**other), 8192) == usual  # type: ignore[arg-type]


def test_a_trial_compares_both(model: LlamaModel) -> None:
    trial = cache_types.compare(model, 1024, math.inf)  # whatever else the machine does
    assert (trial.reading, trial.decoding) != (1.0, 1.0)
    assert min(trial.reading, trial.decoding) > 0  # how much depends on what else the machine does


def test_large_models_are_timed_later_and_the_next_start_uses_it(
    monkeypatch: pytest.MonkeyPatch, model: LlamaModel, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Neighbours, "busy_cores", lambda _: 0.0)
    monkeypatch.setattr(cache_types.library, "version", lambda: "of large models")  # so that nothing is known
    assert not cache_types.is_pending(model.path)  # a load comes first
    monkeypatch.setattr(cache_types, "SLOW", 0.0)
    assert fastest(model, 8192) == model.cache_types
    assert cache_types.is_pending(model.path)
    measured = replace(cache_types.retried(model.path), is_calm=True)
    assert (measured.reading, measured.decoding) != (1.0, 1.0)
    calm, found = [True, False], CacheTrial(1.5, 0.97)
    monkeypatch.setattr(cache_types, "retried", lambda _: replace(found, is_calm=calm.pop()))
    assert not pair.settle_types(model.path)  # beside others
    assert cache_types.is_pending(model.path)
    assert pair.settle_types(model.path)
    assert pair.settle_types(model.path)  # nothing is due
    assert fastest(model, 8192) == HALVES
    info.show(str(model.path), as_json=False)
    told, errors = capsys.readouterr()
    assert "read at 1.50 times the speed, and replies after them decoded at 0.97 times, so they are used" in errors
    assert "cache in Q8_0/F16, in F16 (as used here)" in told


def test_types_that_are_due_are_tried_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, said = list[bool](), list[str]()
    monkeypatch.delenv(seeking.OPT_OUT)
    monkeypatch.setattr(seeking, "running", lambda: None)  # whatever other tests do
    monkeypatch.setattr(seeking, "start", lambda _, tries_drafts: begun.append(tries_drafts))
    monkeypatch.setattr(cache_types, "is_pending", lambda _: bool(not begun))
    search = seeking.Search(DEMO.target, said.append, wants_draft=False)
    search.begin()
    search.begin()
    assert begun == [False]
    assert said == ["Tried for target.gguf in the background: other types of its cache. The next start uses what pays."]


@pytest.mark.parametrize("first", [CacheTrial(1.0, 0.7), CacheTrial(1.0, 1.0)], ids=["timed", "not timed"])
def test_a_trial_beside_other_programs_is_made_again_when_they_rest(
    monkeypatch: pytest.MonkeyPatch, model: LlamaModel, first: CacheTrial
) -> None:
    trials, busy = [CacheTrial(2.0, 1.0), first], [1.2]
    monkeypatch.setattr(cache_types, "compare", lambda *_: trials.pop())
    monkeypatch.setattr(cache_types.library, "version", lambda: f"after {first}")  # so that nothing is known
    monkeypatch.setattr(Neighbours, "busy_cores", lambda _: busy[0])
    assert [fastest(model, 8192), fastest(model, 8192)] == [model.cache_types] * 2
    assert len(trials) == 1
    busy[0] = 0.1
    assert [fastest(model, 8192), fastest(model, 8192)] == [HALVES, HALVES]


def test_f16_takes_no_memory_that_was_planned_for_something_else() -> None:
    options = Options(n_ctx=2048)
    spec = pair_spec(replace(DEMO, draft=None), options, False)
    assert spec is not None

    def with_halves(free: int, options: Options = options) -> bool | None:
        """Whether F16 fits as well, if all fits without."""
        reading = Reading((MemoryPool("this machine", free, 16_000 * MIB),))
        plan = plan_of(spec, reading, options, "demo")
        return None if plan is None or plan.is_less else plan_with_halves(spec, reading, options) is not None

    frees = range(spec.needs(2048, False), 4000 * MIB, MIB // 4)
    least = frees[bisect_left(frees, True, key=lambda free: with_halves(free) is not None)]
    assert not with_halves(least)
    assert with_halves(least + 8 * MIB)
    assert not with_halves(least + 8 * MIB, replace(options, exact=True))


def test_long_contexts_are_tested_as_far_as_memory_allows(
    monkeypatch: pytest.MonkeyPatch, engines: tuple[LoadedEngine, LoadedEngine]
) -> None:
    backend, pair = engines[0]._loaded.backend, engines[0]._loaded
    assert pair.wanted.spec is not None
    monkeypatch.setattr(profile, "FAR_BYTES", 1 << 40)
    whole = profile.longest_test(backend, pair.wanted.spec.target)
    assert whole == min(profile.FAR_CONTEXTS[-1], backend.n_ctx // 2)
    monkeypatch.setattr(profile, "FAR_BYTES", 1 << 20)
    assert 0 < profile.longest_test(backend, pair.wanted.spec.target) < whole
    assert profile.far_difference(backend, 1, whole) == profile.far_difference(backend, 8, 100) == 0
