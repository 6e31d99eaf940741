"""What goes to GPUs: everything while it fits, then less in the order of sacrifice, then only some layers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runtime.core.errors import ModelError
from runtime.core.pressure import MIB, USUAL, MemoryPool, Reading, Thresholds
from runtime.engine import Options
from runtime.loading.fit import FLOOR, Headroom, LoadPlan, PairSpec
from runtime.loading.footprint import ALL_LAYERS, ContextSpec, compute_bytes
from runtime.loading.loaded_pair import LoadedPair
from runtime.loading.planning import fit_devices, layer_bytes
from runtime.models.cache_layout import HALVES, CacheSpec, cache_bytes
from runtime.models.facts import ModelFacts
from runtime.models.header import Header, TensorInfo
from runtime.models.registry import load_registry

NOTHING_SPARED = Thresholds(tight_device_bytes=0, critical_device_bytes=0)
PLENTY = Headroom(64_000 * MIB, 0, 0)


def facts(is_tied: bool = False) -> ModelFacts:
    """8 layers of 100 MiB, an output of 50 and an input table of 40."""
    numbers = {
        "embedding_length": 1024,
        "block_count": 8,
        "feed_forward_length": 4096,
        "attention.head_count": 16,
        "context_length": 8192,
    }
    metadata: dict[str, Any] = {
        "general.architecture": "llama",
        **{f"llama.{key}": value for key, value in numbers.items()},
    }
    sizes = {**{f"blk.{i}.ffn_up.weight": 100 for i in range(8)}, "token_embd.weight": 40} | (
        {} if is_tied else {"output.weight": 50}
    )
    return ModelFacts(
        Header(metadata, tuple(TensorInfo(name, (1024, 1024), "Q8_0", 0, n * MIB) for name, n in sizes.items()), 0)
    )


def spec(draft: bool = True) -> PairSpec:
    return PairSpec(facts(), facts() if draft else None, ContextSpec(8192, HALVES, n_rows=9), on_device=True)


def on(*free: int, host: Headroom | None = PLENTY, **more: Any) -> LoadPlan:
    """The plan for devices with so many MiB free."""
    devices = [MemoryPool(f"GPU {i}", n * MIB, 64_000 * MIB, True) for i, n in enumerate(free)]
    return fit_devices(replace(spec(), **more), devices, host, NOTHING_SPARED, "big.gguf")


def test_everything_goes_to_a_device_with_room() -> None:
    plan = on(8000)
    assert (plan.n_gpu_layers, plan.with_draft, plan.n_ctx, plan.is_less) == (ALL_LAYERS, True, 8192, False)
    assert "everything fits" in plan.text


@pytest.mark.slow
def test_draft_model_and_context_go_before_any_layer() -> None:
    order = list[tuple[bool, bool, bool]]()
    for free in range(2600, 20, -1):
        plan = on(free)
        state = plan.with_draft, plan.n_ctx == 8192, plan.n_gpu_layers == ALL_LAYERS
        if not order or order[-1] != state:
            order.append(state)
    assert order == [(True, True, True), (False, True, True), (False, False, True), (False, False, False)]


def test_a_target_without_a_draft_model_is_divided_too() -> None:
    plan = on(300, draft=None)
    assert 0 < plan.n_gpu_layers < 9


def test_as_many_layers_go_as_fit_the_output_first() -> None:
    context = ContextSpec(FLOOR, HALVES, n_rows=9)
    parts, overhead = layer_bytes(facts(), context), compute_bytes(facts(), context, FLOOR)
    assert parts == [50 * MIB, *[100 * MIB + cache_bytes(facts(), CacheSpec(FLOOR, HALVES)) // 8] * 8]
    for n in range(9):
        needs = -(-(sum(parts[:n]) + overhead) // MIB)
        plan = on(needs)
        assert plan.n_gpu_layers == n
        assert plan.text.startswith(
            f"{n} of 9 layers are on the GPU; left out the draft model, context beyond 1024 of 8192 tokens"
        )


def test_without_an_output_of_its_own_the_input_table_goes_too() -> None:
    assert layer_bytes(facts(is_tied=True), ContextSpec(FLOOR))[0] == 40 * MIB


def test_two_devices_hold_what_one_of_both_sizes_would_less_a_layer_on_the_border() -> None:
    one, two = on(600), on(300, 300)
    assert 0 < one.n_gpu_layers - two.n_gpu_layers <= 2


def test_what_should_stay_free_on_a_device_stays_free() -> None:
    device = [MemoryPool("GPU", 600 * MIB, 8000 * MIB, True)]
    careful = fit_devices(spec(), device, PLENTY, Thresholds(critical_device_bytes=200 * MIB), "big.gguf")
    assert careful.n_gpu_layers < on(600).n_gpu_layers


def test_layers_of_a_model_without_a_draft_model_stay_behind_as_well() -> None:
    alone = replace(spec(), draft=None)
    device = [MemoryPool("GPU", 600 * MIB, 8000 * MIB, True)]
    plan = fit_devices(alone, device, PLENTY, USUAL, "big.gguf")
    assert 0 < plan.n_gpu_layers < 9
    assert fit_devices(alone, device, None, USUAL, "big.gguf") == plan


def test_what_neither_device_nor_machine_can_hold_is_refused() -> None:
    with pytest.raises(
        ModelError,
        match=r"big.gguf needs \d+ MiB besides the 2 layers that fit on the GPU, but 100 MiB are free\. Close other",
    ):
        on(250, host=Headroom(100 * MIB, 0, 0))
    assert on(250, host=None).n_gpu_layers == 2


@pytest.mark.parametrize(("free", "total", "n_layers"), [(10_000, 24_000, ALL_LAYERS), (0, 0, None), (2, 24_000, 0)])
def test_a_loaded_pair_asks_its_devices(
    monkeypatch: pytest.MonkeyPatch, free: int, total: int, n_layers: int | None
) -> None:
    class WithDevice:
        def __init__(self, devices: object) -> None:
            pass

        def __call__(self) -> Reading:
            places = (
                MemoryPool("this machine", 9000 * MIB, 16_000 * MIB),
                MemoryPool("a GPU", free * MIB, total * MIB, True),
            )
            return Reading(places)

    monkeypatch.setattr("runtime.loading.open_pair.MemoryReader", WithDevice)
    given = list[int]()
    real = load_registry()["demo"]

    class StopError(Exception):
        pass

    def load(path: Path, what: str, on_progress: object, exact: bool, gpu_layers: int, **more: object) -> None:
        given.append(gpu_layers)
        raise StopError

    monkeypatch.setattr("runtime.loading.open_pair.load", load)
    with pytest.raises(StopError):
        LoadedPair(real, Options())
    assert given == [ALL_LAYERS if n_layers is None else n_layers]
