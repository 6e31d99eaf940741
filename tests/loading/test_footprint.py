"""Memory is estimated from headers alone, what does not fit is given up in order, or refused before loading."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.instruments.processes import elsewhere
from bench.instruments.shapes import DRAFT_10M, write_random
from runtime.backends import library
from runtime.core.errors import ModelError
from runtime.core.pressure import MIB, MemoryPool, Reading, Thresholds
from runtime.engine import Engine, Options
from runtime.loading.fit import FLOOR, Headroom, PairSpec, draft_context, fit, headroom_of, spec_of
from runtime.loading.footprint import ContextSpec, estimate
from runtime.loading.loaded_pair import LoadedPair
from runtime.loading.planning import pair_spec
from runtime.models.cache_layout import HALVES, USUAL_CACHE, CacheTypes, cache_types
from runtime.models.facts import ModelFacts
from runtime.models.gguf_types import Strings
from runtime.models.header import Header, TensorInfo, read_header
from runtime.models.registry import AS_TRAINED, Pair, load_registry
from tests.support.footprint import Case, measured


def facts(kind: str = "Q8_0", width: int = 1024, layers: int = 8, vocab: int = 1000, heads: int = 16) -> ModelFacts:
    """A model of one matrix of 100 MiB."""
    numbers = {
        "embedding_length": width,
        "block_count": layers,
        "feed_forward_length": 4 * width,
        "attention.head_count": heads,
        "context_length": 8192,
    }
    metadata: dict[str, Any] = {
        "general.architecture": "llama",
        **{f"llama.{key}": value for key, value in numbers.items()},
    }
    metadata["tokenizer.ggml.tokens"] = Strings(vocab, vocab * b"\1\0\0\0\0\0\0\0w")
    return ModelFacts(Header(metadata, (TensorInfo("blk.0.ffn_up.weight", (width, width), kind, 0, 100 * MIB),), 0))


def spec(draft: bool = True, n_ctx: int = 8192, cache: CacheTypes = HALVES, floor: int = FLOOR) -> PairSpec:
    return PairSpec(facts(), facts() if draft else None, ContextSpec(n_ctx, cache, n_rows=9), floor)


def test_weights_cache_and_buffers_add_up() -> None:
    found = estimate(facts(), ContextSpec(2000, HALVES, n_rows=9))
    assert found.weights == 100 * MIB
    assert found.cache == 2 * 8 * 1024 * 2048 * 2  # keys and values, layers, width, padded context, bytes
    assert found.needed == found.weights + found.cache + found.compute + found.words
    assert found.repacked == 0


def test_a_quantized_cache_and_a_shorter_context_take_less() -> None:
    long, half, small = (
        estimate(facts(), ContextSpec(n_ctx, kind)).cache
        for n_ctx, kind in ((4096, HALVES), (2048, HALVES), (4096, USUAL_CACHE))
    )
    assert half == long // 2
    assert small == long * (17 + 32) // 64


def test_weights_in_another_layout_are_there_twice_but_not_needed_twice() -> None:
    found = estimate(facts("Q4_0"), ContextSpec(2048))
    assert found.repacked == 100 * MIB
    assert estimate(facts("Q4_0"), ContextSpec(2048, repacks=False)).repacked == 0


def test_heads_that_blocks_do_not_divide_have_a_cache_of_halves() -> None:
    assert cache_types(facts()) == USUAL_CACHE
    assert cache_types(facts(width=768, heads=16)) == ("BF16", "F16")


@pytest.mark.parametrize(
    ("width", "n_halves", "values"),
    [(64, 128, "BF16"), (192, 128, "BF16"), (256, 128, "F16"), (96, 64, "BF16"), (64, 64, "F16"), (96, 32, "F16")],
)
def test_values_of_which_a_rest_would_be_added_one_by_one_are_kept_otherwise(
    width: int, n_halves: int, values: str
) -> None:
    found = facts(width=8 * width, heads=8)
    assert cache_types(found, n_halves=n_halves) == ("Q8_0", values)
    assert cache_types(found) == USUAL_CACHE
    assert cache_types(found, on_device=True, n_halves=n_halves) == HALVES


@pytest.mark.parametrize(
    ("flags", "built_for", "n"),
    [
        ("avx2", "AVX2 = 1", 32),
        ("avx512f", "AVX512 = 1 | AVX512_BF16 = 1", 64),
        ("avx512f avx512_fp16", "AVX512 = 1 | AVX512_BF16 = 1", 128),
        ("avx512f avx512_fp16", "AVX2 = 1", 32),
        (None, "NEON = 1", 32),
    ],
)
def test_how_many_halves_are_added_at_once_follows_from_the_build_and_the_processor(
    flags: str | None, built_for: str, n: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "FLAGS", tmp_path / "cpuinfo")
    monkeypatch.setattr(library, "version", lambda: built_for)
    if flags is not None:
        library.FLAGS.write_text(f"processor: 0\nflags : {flags}\n")
    assert library.halves_at_once.__wrapped__() == n


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random(tmp_path_factory.mktemp("models") / "small.gguf", DRAFT_10M)


@pytest.mark.parametrize("cache", [USUAL_CACHE, HALVES], ids="/".join)
def test_the_estimate_is_within_a_tenth_of_what_a_process_grows_by(tiny: Path, small: Path, cache: CacheTypes) -> None:
    case = Case("", small, ContextSpec(4096, cache, n_rows=9, n_batch=256))
    assert case.estimated() == pytest.approx(elsewhere(measured, tiny, case), rel=0.1)


def test_everything_is_kept_while_it_fits() -> None:
    plan = fit(spec(), Headroom(4000 * MIB, 500 * MIB, 500 * MIB), "big.gguf")
    assert (plan.n_ctx, plan.with_draft) == (8192, True)
    assert "everything fits" in plan.text


def test_the_draft_model_goes_first_then_context() -> None:
    order = list[tuple[bool, bool]]()
    for free in range(900, 100, -1):
        try:
            plan = fit(spec(), Headroom(free * MIB, 0, 0), "big.gguf")
        except ModelError:
            break
        assert plan.n_bytes <= free * MIB
        if not order or order[-1] != (plan.with_draft, plan.n_ctx == 8192):
            order.append((plan.with_draft, plan.n_ctx == 8192))
    assert order == [(True, True), (False, True), (False, False)]


def test_context_is_as_long_as_fits_and_never_below_the_floor() -> None:
    lengths = set()
    for free in range(159, 400, 3):
        plan = fit(spec(draft=False, cache=USUAL_CACHE), Headroom(free * MIB, 0, 0), "big.gguf")
        lengths.add(plan.n_ctx)
        if plan.n_ctx < 8192:
            longer = ContextSpec(plan.n_ctx + 256, n_rows=9)
            assert estimate(facts(), longer).needed > free * MIB
            assert f"context beyond {plan.n_ctx} of 8192 tokens" in plan.text
    assert FLOOR <= min(lengths) < 2 * FLOOR


def test_context_is_kept_where_only_the_draft_would_make_memory_tight() -> None:
    plan = fit(spec(), Headroom(900 * MIB, 800 * MIB, 100 * MIB), "big.gguf")
    assert (plan.n_ctx, plan.with_draft) == (8192, False)
    assert plan.text.startswith("left out the draft model: all of it needs")


def test_what_cannot_fit_is_refused_with_numbers_and_a_remedy() -> None:
    with pytest.raises(
        ModelError,
        match=r"big.gguf needs \d+ MiB of memory with a context of 1024 tokens, but 50 MiB are free\. Close other",
    ):
        fit(spec(), Headroom(50 * MIB, 0, 0), "big.gguf")


def test_the_least_is_loaded_even_where_nothing_can_be_spared() -> None:
    plan = fit(spec(), Headroom(300 * MIB, 290 * MIB, 290 * MIB), "big.gguf")
    assert (plan.n_ctx, plan.with_draft) == (FLOOR, False)


def test_room_is_that_of_the_scarcest_place_and_may_be_unknown() -> None:
    places = (
        MemoryPool("this machine", 9000 * MIB, 16_000 * MIB),
        MemoryPool("this process's cgroup", 700 * MIB, 1000 * MIB),
        MemoryPool("GPU", 1, 2 * MIB, True),
    )
    assert headroom_of(Reading(places), Thresholds(recovery=1)) == Headroom(700 * MIB, 80 * MIB, 30 * MIB)
    assert headroom_of(Reading(places[2:]), Thresholds()) is None


def test_the_draft_models_share_stops_growing_with_the_context() -> None:
    needs = [spec(n_ctx=n).draft_needs(n) for n in (1024, 2048, 4096, 32_768)]
    assert needs[0] < needs[1] == needs[2] == needs[3]
    assert replace(spec(), window=1024).draft_needs(4096) == needs[0]


def test_a_draft_models_context_holds_what_it_looks_at_and_what_it_drafts() -> None:
    assert draft_context(8192, 2048, 8, 131_072) == 2056
    assert draft_context(1000, 2048, 8, 131_072) == 1008
    assert draft_context(8192, 2048, 8, 1024) == 1032
    assert draft_context(8192, 2048, 8, 0) == 2056


def test_files_that_cannot_be_read_leave_it_to_the_library(tmp_path: Path, tiny: Path) -> None:
    odd = tmp_path / "odd.gguf"
    odd.write_bytes(b"GGUF")
    assert spec_of(odd, None, ContextSpec(512), FLOOR) is None
    assert spec_of(tiny, tmp_path / "missing.gguf", ContextSpec(512), FLOOR) is None


def demo_in(monkeypatch: pytest.MonkeyPatch, free: int, options: Options, seen: set[str]) -> LoadedPair:
    """The bundled pair on a machine with `free` MiB of 16,000."""

    class Small:
        def __init__(self, devices: object) -> None:
            pass

        def __call__(self) -> Reading:
            return Reading((MemoryPool("this machine", free * MIB, 16_000 * MIB),))

    monkeypatch.setattr("runtime.loading.open_pair.MemoryReader", Small)
    return LoadedPair(load_registry()["demo"], options, lambda what, share: seen.add(what) is None)


def test_a_pair_is_loaded_without_its_draft_where_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[str] = set()
    loaded = demo_in(monkeypatch, 1645, Options(drafters=("model", "ngram")), seen)
    assert seen == {"target"}
    assert [drafter.name for drafter in loaded.decoder.active.drafters] == ["ngram"]
    assert loaded.decoder.why_plain().code == "memory"
    assert "left out the draft model: all of it needs" in loaded.decoder.why_plain().text
    loaded.close()


def test_a_target_that_cannot_fit_is_refused_before_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[str] = set()
    with pytest.raises(ModelError, match=r"needs \d+ MiB of memory with a context of 1024 tokens, but 20 MiB are free"):
        demo_in(monkeypatch, 20, Options(), seen)
    assert seen == set()


def test_a_context_that_was_asked_for_is_not_made_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = demo_in(monkeypatch, 600, Options(drafters=(), n_ctx=2048), set())
    assert loaded.backend.n_ctx == 2048
    loaded.close()


def test_the_engine_says_what_was_chosen(open_demo: object) -> None:
    engine: Engine = open_demo(drafters=())  # type: ignore[operator]
    assert "everything fits: it needs" in engine.facts.fit


def test_the_estimate_reads_the_bundled_headers() -> None:
    pair = load_registry()["demo"]
    found = estimate(ModelFacts(read_header(pair.target)), ContextSpec(2048))
    assert found.weights < pair.target.stat().st_size < found.needed


def test_a_context_that_nobody_asked_for_is_as_long_as_trained_where_that_takes_its_share_of_memory() -> None:
    demo = load_registry()["demo"].target
    spec = pair_spec(Pair("any", demo, context=AS_TRAINED), Options(drafters=()), with_draft=False)
    assert spec is not None
    assert spec.is_open
    assert spec.context.n_ctx == spec.target.n_context
    long = replace(spec, context=replace(spec.context, n_ctx=131_072))
    usual = long.needs(4096, False)
    assert long.roomy(4 * (long.needs(131_072, False) - usual)).context.n_ctx == 131_072
    assert long.roomy(4 * (long.needs(32_768, False) - usual)).context.n_ctx == 32_768
    assert long.roomy(0).context.n_ctx == 4096
    asked = pair_spec(Pair("any", demo, context=AS_TRAINED), Options(n_ctx=512), with_draft=False)
    assert asked is not None
    assert (asked.context.n_ctx, asked.is_open) == (512, False)
