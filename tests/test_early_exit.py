"""Early exit on the real library: early logits are those of a pruned model, verifying is a full pass, whatever was
decoded before.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import llama_cpp.llama_cpp as lib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from demo.evaluate import keep_first_layers
from runtime.backends import early_exit, llama, nodes
from runtime.backends.early_exit import EarlyExitBackend, ExitCheck
from runtime.backends.llama import GGML_TYPES, LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.backends.nodes import EarlyExitError
from runtime.core.draft import NO_DRAFT, Draft, Logits
from runtime.core.errors import ContextError, ModelError, SettingsError
from runtime.engine import Engine, Options
from runtime.loading.loaded_pair import LoadedPair
from runtime.models.registry import load_registry
from tests.support.shapes import Shape, write_random

SHAPE = Shape(width=64, layers=6, heads=2, kv_heads=1, ffn=128, vocab=512)
EXITS, MOST, N_CTX = (2, 4), 8, 600
Q8, F16, BF16 = lib.GGML_TYPE_Q8_0, lib.GGML_TYPE_F16, GGML_TYPES["BF16"]
FLASH, PLAIN = lib.LLAMA_FLASH_ATTN_TYPE_ENABLED, lib.LLAMA_FLASH_ATTN_TYPE_DISABLED
EXACT = {
    "Q8_0, flash": (Q8, Q8, FLASH),
    "BF16, flash": (BF16, BF16, FLASH),
}  # at any length of context, for every width
CACHES = {
    **EXACT,
    "F16, flash": (F16, F16, FLASH),
    "BF16": (BF16, BF16, PLAIN),
    "F16": (F16, F16, PLAIN),
    "Q8_0 keys": (Q8, F16, PLAIN),
}
# By which a plain target differs from itself at another width (BF16: where the processor multiplies it); confused rows
# differ by more than 1.
ROUNDING = {"BF16": 0.3, "F16": 0.3, "Q8_0 keys": 0.3}
SHORT = 48  # tokens, up to which the others do not round otherwise in prefill


class WithCache:
    """Chooses the kind of cache, in front of a backend's class."""

    def __init__(self, model: LlamaModel, cache: str) -> None:
        self.cache = CACHES[cache]
        super().__init__(model, N_CTX, n_rows=MOST + 1, n_batch=64)  # type: ignore[call-arg]
        self.set_threads(1, 1)  # type: ignore[attr-defined]

    def _params(self, n_ctx: int) -> lib.llama_context_params:
        params = super()._params(n_ctx)  # type: ignore[misc]
        params.type_k, params.type_v, params.flash_attn_type = self.cache
        return params


class Full(WithCache, LlamaBackend):
    pass


class Early(WithCache, EarlyExitBackend):
    pass


class Backends:
    """A target that exits early, the same without, and its first layers alone, all with one kind of cache."""

    def __init__(self, models: dict[int, LlamaModel], cache: str) -> None:
        self.early, self.full = Early(models[SHAPE.layers], cache), Full(models[SHAPE.layers], cache)
        self.pruned = {layers: Full(models[layers], cache) for layers in EXITS}
        self.early.exit_at(EXITS[0])
        self.early.reuses, self.rounding = True, ROUNDING.get(cache, 0.0)

    def close(self) -> None:
        for backend in (self.early, self.full, *self.pruned.values()):
            backend.close()


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, LlamaModel]]:
    """Layers -> a random model, whole and cut."""
    folder = tmp_path_factory.mktemp("early")
    whole = write_random(folder / "whole.gguf", SHAPE)
    opened = {SHAPE.layers: LlamaModel(whole)}
    for layers in EXITS:
        keep_first_layers(whole, layers, SHAPE.layers, folder / f"{layers}.gguf")
        opened[layers] = LlamaModel(folder / f"{layers}.gguf")
    yield opened
    for model in opened.values():
        model.close()


@pytest.fixture(scope="module")
def backends(models: dict[int, LlamaModel]) -> Iterator[dict[str, Backends]]:
    opened = {cache: Backends(models, cache) for cache in CACHES}
    yield opened
    for each in opened.values():
        each.close()


@pytest.fixture
def fresh(models: dict[int, LlamaModel]) -> Iterator[Backends]:
    """For a test that does harm."""
    opened = Backends(models, "Q8_0, flash")
    yield opened
    opened.close()


def some(rng: np.random.Generator, n: int) -> list[int]:
    return rng.integers(0, SHAPE.vocab, n).tolist()


def array(tokens: list[int]) -> np.ndarray:
    return np.array(tokens, dtype=np.int32)


class Walk:
    """A random conversation with a target that is asked early and fully in any order; every answer is compared."""

    def __init__(self, backends: Backends, seed: int, longest: int) -> None:
        self.all, self.rng, self.longest = backends, np.random.default_rng(seed), longest
        self.context = some(self.rng, int(self.rng.integers(1, longest)))

    def step(self) -> None:
        drafted = self.draft_early()
        kinds = (
            drafted,
            drafted[:-1],
            [*drafted, *some(self.rng, 1)],
            [*drafted[:-1], *some(self.rng, 1)],
            some(self.rng, 2),
            [],
        )
        draft = kinds[int(self.rng.choice(len(kinds), p=[0.5, 0.1, 0.1, 0.1, 0.1, 0.1]))][:MOST]
        self.verify(Draft(tuple(draft)))
        self.context += [*draft[: int(self.rng.integers(0, len(draft) + 1))], *some(self.rng, 1)]
        if self.rng.random() < 0.2 or len(self.context) > self.longest:
            self.context = [*self.context[: int(self.rng.integers(1, self.longest))], *some(self.rng, 3)]
        if self.rng.random() < 0.1:
            self.all.early.exit_at(EXITS[int(self.rng.integers(0, len(EXITS)))])

    def draft_early(self) -> list[int]:
        """Token by token as a drafter asks, or several at once."""
        drafted = list[int]()
        for _ in range(int(self.rng.integers(0, MOST + 1))):
            more = Draft(tuple(some(self.rng, int(self.rng.random() < 0.1))))
            self.same(
                self.all.early.early.forward(array(self.context + drafted), more),
                self.all.pruned[self.all.early.exit_layer],
                drafted,
                more,
            )
            drafted += some(self.rng, 1)
        return drafted

    def verify(self, draft: Draft) -> None:
        self.same(self.all.early.forward(array(self.context), draft), self.all.full, [], draft)

    def same(self, got: Logits, reference: LlamaBackend, drafted: list[int], draft: Draft) -> None:
        difference = np.abs(got - reference.forward(array(self.context + drafted), draft)).max()
        assert difference <= self.all.rounding


@pytest.mark.parametrize("cache", CACHES)
@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_early_logits_are_a_pruned_models_and_verifying_is_a_full_pass(
    backends: dict[str, Backends], cache: str, seed: int
) -> None:
    """Drafts accepted, cut, changed and lengthened, edits and other exit layers."""
    walk = Walk(backends[cache], seed, SHORT)
    for _ in range(12):
        walk.step()
    reused = walk.all.early.n_reused
    walk.all.early.early.forward(array(walk.context))
    walk.verify(Draft((5,)))
    assert walk.all.early.n_reused == reused + 2


@pytest.mark.parametrize("cache", EXACT)
@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_the_same_for_prompts_longer_than_batches_and_blocks(
    backends: dict[str, Backends], cache: str, seed: int
) -> None:
    walk = Walk(backends[cache], seed, N_CTX - 2 * MOST - 4)
    for _ in range(8):
        walk.step()


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_an_interrupted_pass_leaves_nothing_behind(backends: dict[str, Backends], seed: int) -> None:
    """Before a pass, after it, or while the scheduler asks about a node."""
    walk, rng, decode = Walk(backends["Q8_0, flash"], seed, 100), np.random.default_rng(seed), lib.llama_decode
    early = walk.all.early

    def interrupted(context: object, batch: object) -> int:
        when = rng.random() if context == early.handle else 1.0
        if when < 0.05:
            raise KeyboardInterrupt
        if when < 0.1 and early.nodes._script:
            early.nodes._script[-1] = early.nodes._script[-1][0], lambda: (_ for _ in ()).throw(KeyboardInterrupt)
        code = int(decode(context, batch))
        if 0.1 < when < 0.15:
            raise KeyboardInterrupt
        return code

    n_interrupted = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(llama.lib, "llama_decode", interrupted)
        for _ in range(12):
            try:
                walk.step()
            except KeyboardInterrupt:
                n_interrupted += 1
                assert (early._n_held, early._n_low) == (0, 0)
    for _ in range(4):
        walk.step()


def test_only_the_upper_layers_of_a_draft_are_computed_and_nothing_twice(backends: dict[str, Backends]) -> None:
    target, context = backends["Q8_0, flash"].early, array(list(range(40)))
    target.exit_at(2)
    target.forward(context[:-1])
    before, reused = target.n_decoded, target.n_reused
    for i in range(3):
        target.early.forward(array([*range(40), 7, 8, 9][: 40 + i]))
    assert target.n_decoded == before + 3
    assert target.early.n_cached(array([*range(40), 7, 8, 9])) == 42
    assert target.n_cached(array([*range(40), 7, 8, 9])) == 39  # of those, with all layers
    target.forward(context, Draft((7, 8, 9)))
    assert (target.n_decoded, target.n_reused) == (before + 3 + 1 + 4, reused + 4)
    target.forward(array([*range(40), 7, 8, 3]))
    assert target.n_decoded == before + 3 + 1 + 4 + 1


def test_a_plain_pass_is_not_made_from_early_rows(backends: dict[str, Backends]) -> None:
    """The controller wants to see what it costs."""
    both, context = backends["Q8_0, flash"], array(list(range(30)))
    both.early.early.forward(context)
    reused = both.early.n_reused
    assert np.array_equal(both.early.forward(context).copy(), both.full.forward(context))
    assert both.early.n_reused == reused


def test_where_other_cells_would_be_filled_everything_is_computed(backends: dict[str, Backends]) -> None:
    both, context = backends["Q8_0, flash"], array(list(range(30)))
    both.early.early.forward(context)
    both.early.early.forward(array([*range(30), 5]))
    both.early._cells += 1
    both.early._rows[:] = 0
    reused = both.early.n_reused
    assert np.array_equal(both.early.forward(context, Draft((5,))).copy(), both.full.forward(context, Draft((5,))))
    assert both.early.n_reused == reused


def test_a_graph_that_was_not_learned_is_left_alone_and_drafts_are_verified_in_full(fresh: Backends) -> None:
    both, context = fresh, array(list(range(30)))
    both.early.early.forward(context)
    both.early.nodes._usual = both.early.nodes._usual + 1
    assert np.array_equal(both.early.forward(context, Draft((5,))).copy(), both.full.forward(context, Draft((5,))))
    assert not both.early.reuses
    with pytest.raises(ModelError, match="not the one that was learned"):
        both.early.early.forward(context)
    assert np.array_equal(both.early.forward(context).copy(), both.full.forward(context))


def test_where_the_scheduler_cannot_be_reached_it_asks_in_every_pass(
    models: dict[int, LlamaModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "scheduler_of", lambda context: None)
    both = Backends(models, "Q8_0, flash")
    walk = Walk(both, 1, 100)
    for _ in range(10):
        walk.step()
    both.close()


@pytest.mark.parametrize("cache", CACHES)
def test_the_check_finds_nothing_wrong(backends: dict[str, Backends], cache: str) -> None:
    found = backends[cache].early.check()
    assert not found.problem
    assert found.reuses or cache not in EXACT
    backends[cache].early.reuses = True


def test_the_check_finds_rows_that_are_not_what_they_were(fresh: Backends, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then drafts are verified in full."""
    both, read = fresh, nodes.Nodes._read

    def slightly_off(self: nodes.Nodes, rows: np.ndarray, cells: np.ndarray) -> bool:
        done = read(self, rows, cells)
        rows *= np.float32(1.001)
        return done

    monkeypatch.setattr(nodes.Nodes, "_read", slightly_off)
    assert both.early.check() == ExitCheck("", reuses=False)
    assert not both.early.reuses
    monkeypatch.undo()
    walk = Walk(both, 2, 100)
    walk.step()
    assert both.early.n_reused == MOST + 1  # only the check's own


def test_the_check_finds_layers_that_were_needed_after_all(fresh: Backends, monkeypatch: pytest.MonkeyPatch) -> None:
    both, skip = fresh, nodes.Nodes._skip
    monkeypatch.setattr(
        nodes.Nodes,
        "_skip",
        lambda self, places: skip(self, self._facts[len(self._usual) // 3 : 2 * len(self._usual) // 3]),
    )
    assert both.early.check().problem


def test_what_does_not_fit_is_refused_early_too(backends: dict[str, Backends]) -> None:
    early = backends["Q8_0, flash"].early.early
    with pytest.raises(ContextError, match="Shorten"):
        early.forward(array([1] * (N_CTX + 1)))
    assert early.forward(array([1] * N_CTX)).shape == (1, SHAPE.vocab)


@pytest.mark.parametrize("layer", [-1, 0, SHAPE.layers, 99])
def test_an_exit_layer_that_the_model_lacks_is_named_with_the_remedy(backends: dict[str, Backends], layer: int) -> None:
    with pytest.raises(
        ModelError, match=rf"exit_layer is {layer}, but whole.gguf has 6 layers. Set it to one from 1 to 5."
    ):
        backends["Q8_0, flash"].early.exit_at(layer)


@pytest.mark.parametrize("architecture", ["qwen2", "smollm3", "exaone"])
def test_other_architectures_exit_like_their_pruned_selves(tmp_path: Path, architecture: str) -> None:
    keep_first_layers(
        write_random(tmp_path / "whole.gguf", SHAPE, architecture), 3, SHAPE.layers, tmp_path / "early.gguf"
    )
    models = [LlamaModel(tmp_path / name) for name in ("whole.gguf", "early.gguf")]
    early, pruned = EarlyExitBackend(models[0], 64, n_rows=5), LlamaBackend(models[1], 64, n_rows=5)
    early.exit_at(3)
    assert early.check() == ExitCheck("", reuses=True)
    context = array(list(range(40)))
    assert np.array_equal(early.early.forward(context).copy(), pruned.forward(context))
    for opened in (early, pruned, *models):
        opened.close()


NAMELESS = (
    early_exit.lib,
    "llama_model_n_layer",
    lambda handle: SHAPE.layers + 1,
)  # an architecture whose last layer's output has no name
ELSEWHERE = nodes.ggml, "ggml_backend_buffer_is_host", lambda buffer: False
OTHERWISE = nodes.ggml, "ggml_tensor_overhead", lambda: ctypes.sizeof(nodes.Tensor)
CELLLESS = nodes.ggml, "ggml_op_name", lambda op: b"CPY"


@pytest.mark.parametrize(
    ("patch", "why"),
    [
        (NAMELESS, "does not name"),
        (ELSEWHERE, "CPU alone"),
        (OTHERWISE, "lays its tensors out"),
        (CELLLESS, "which cells"),
    ],
    ids=["no names", "other devices", "another layout", "no cells"],
)
def test_it_declines_a_graph_that_it_does_not_know(
    models: dict[int, LlamaModel], monkeypatch: pytest.MonkeyPatch, patch: tuple[object, str, object], why: str
) -> None:
    monkeypatch.setattr(*patch)
    with pytest.raises(EarlyExitError, match=why):
        EarlyExitBackend(models[SHAPE.layers], 64)


def test_it_declines_an_architecture_that_cannot_rewind_and_one_of_a_single_layer(
    models: dict[int, LlamaModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(early_exit.lib, "llama_model_n_layer", lambda handle: 1)
    with pytest.raises(EarlyExitError, match="one layer"):
        EarlyExitBackend(models[SHAPE.layers], 64)
    monkeypatch.setattr(models[SHAPE.layers], "is_recurrent", True)
    with pytest.raises(EarlyExitError, match="drop rejected tokens"):
        EarlyExitBackend(models[SHAPE.layers], 64)


def test_a_pair_that_cannot_exit_early_runs_without_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes.ggml, "ggml_backend_buffer_is_host", lambda buffer: False)
    pair = replace(load_registry()["demo"], drafters=("ngram", "layerskip"))
    loaded = LoadedPair(pair, Options())
    assert [drafter.name for drafter in loaded.loop.drafters] == ["ngram"]
    assert loaded.loop.why_plain().code == "architecture"
    assert "CPU alone" in loaded.loop.why_plain().text
    loaded.close()


def test_who_asks_for_it_where_it_cannot_be_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes.ggml, "ggml_backend_buffer_is_host", lambda buffer: False)
    with pytest.raises(
        SettingsError, match=r"'layerskip' cannot run on target.gguf, because its graph .* Leave it out of `--drafters`"
    ):
        Engine(load_registry()["demo"], Options(drafters=("layerskip",)))
    monkeypatch.undo()
    with pytest.raises(SettingsError, match="token trees"):
        Engine(load_registry()["demo"], Options(drafters=("layerskip",), branches=1))


def test_the_bundled_target_exits_like_its_pruned_self(tmp_path: Path) -> None:
    path = load_registry()["demo"].target
    model = LlamaModel(path)
    layers = int(model.metadata("slipstream.exit_layer"))
    keep_first_layers(path, layers, int(model.metadata("llama.block_count")), tmp_path / "early.gguf")
    cut = LlamaModel(tmp_path / "early.gguf")
    early, full, pruned = (
        EarlyExitBackend(model, 512, n_rows=9),
        LlamaBackend(model, 512, n_rows=9),
        LlamaBackend(cut, 512, n_rows=9),
    )
    early.exit_at(layers)
    assert early.check() == ExitCheck("", reuses=True)
    for backend in (early, full, pruned):
        backend.set_threads(1, 1)
    context = np.random.default_rng(3).integers(0, early.n_vocab, 320).astype(np.int32)
    for n in (4, 300):
        for i in range(8):
            assert np.array_equal(early.early.forward(context[: n + i]).copy(), pruned.forward(context[: n + i]))
        draft = Draft(tuple(context[n : n + 8].tolist()))
        assert np.array_equal(early.forward(context[:n], draft).copy(), full.forward(context[:n], draft))
    assert early.n_reused == 9 + 2 * 9
    assert np.array_equal(early.forward(context, NO_DRAFT).copy(), full.forward(context, NO_DRAFT))
    for opened in (early, full, pruned, model, cut):
        opened.close()
