"""The layerskip drafter: where it exits, what is remembered of that, and that replies are the target's own, however it
drafts.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.instruments.toy import ToyBackend
from runtime.core.backend import Backend
from runtime.core.draft import NO_DRAFT, Draft, Logits, Tokens
from runtime.core.drafter import Answer, Budget, Pick
from runtime.core.errors import ModelError, RegistryError
from runtime.drafters.model import LayerSkipDrafter
from runtime.engine import Message, Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.loading import exit_layer
from runtime.loading.exit_layer import agreement_with, best_exit, own_text, settle
from runtime.loading.profile_cache import ProfileCache
from runtime.models.registry import Pair, load_registry

QUESTIONS = ("What does os.path.join do?", "What is collections.deque?", "What does json.dumps do?")


@dataclass
class Found:
    problem: str = ""
    reuses: bool = True


class ToyTarget(ToyBackend):
    """Its first layers say what it says itself, from layer `clever` on; before, they are often wrong."""

    n_rows, n_layers, reuses = 5, 12, False

    def __init__(self, clever: int = 1, found: Found | None = None) -> None:
        super().__init__()
        self.clever, self.found, self.exits = clever, found or Found(), list[int]()

    @property
    def early(self) -> Backend:
        return ToyBackend(blur=0.0 if self.exits[-1] >= self.clever else 0.6)

    def exit_at(self, layer: int) -> None:
        self.exits.append(layer)

    def check(self) -> Found:
        return self.found


@dataclass
class Memory:
    values: dict[str, Any] = field(default_factory=dict)

    def read(self) -> dict[str, Any]:
        return self.values

    def write(self, values: dict[str, Any]) -> None:
        self.values = values


def test_the_named_exit_layer_is_taken_and_checked_once() -> None:
    target, memo = ToyTarget(), Memory()
    assert settle(target, 4, memo) == ""
    assert (set(target.exits), target.reuses) == ({4}, True)
    again = ToyTarget(found=Found("not asked again"))
    assert settle(again, 4, memo) == ""
    assert (again.exits, again.reuses) == ([4], True)


def test_what_the_check_found_is_remembered(tmp_path: Path) -> None:
    memo = ProfileCache("key", tmp_path)
    for _ in range(2):
        target = ToyTarget(found=Found("it differs", reuses=False))
        assert settle(target, 3, memo) == "it differs"
        assert not target.reuses


def test_a_memo_that_cannot_be_read_is_found_again() -> None:
    target, memo = ToyTarget(), Memory({"layer": 99})
    settle(target, 4, memo)
    assert memo.values.items() >= {"layer": 4, "problem": "", "reuses": True, "words": 0}.items()


@pytest.mark.parametrize("clever", [2, 4, 6])
def test_the_sweep_finds_the_first_layer_that_agrees(monkeypatch: pytest.MonkeyPatch, clever: int) -> None:
    """By a clock that says the same of every pass."""
    target = ToyTarget(clever)
    monkeypatch.setattr(exit_layer, "seconds", lambda run: 1.0)
    assert best_exit(target) == clever
    target.exits.clear()
    memo = Memory()
    settle(target, 0, memo)
    assert (target.exits[-1], memo.values["layer"]) == (clever, clever)


def test_the_sweep_prefers_a_layer_that_is_reached_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the later ones do not say more that is right."""
    target = ToyTarget(clever=99)
    monkeypatch.setattr(exit_layer, "seconds", lambda run: float(target.exits[-1] if target.exits else 20))
    assert best_exit(target) == 1


def test_agreement_is_counted_over_every_token_of_the_targets_own_text() -> None:
    target = ToyTarget(clever=5)
    text = own_text(target)
    for n in range(1, len(text)):
        assert text[n] == target.forward(text[:n])[0].argmax()
    target.exit_at(5)
    assert agreement_with(text, target) == 1.0
    target.exit_at(1)
    right = [target.early.forward(text[:n])[0].argmax() == text[n] for n in range(1, len(text))]
    assert agreement_with(text, target) == pytest.approx(np.mean(right))


class Plain(ToyBackend):
    """Counts what it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.drafts: list[int] = []

    def forward(self, context: Tokens, draft: Draft = NO_DRAFT, exact: bool = True) -> Logits:
        self.drafts.append(len(draft))
        return super().forward(context, draft, exact)


def test_it_drafts_as_a_draft_model_does_under_its_own_name() -> None:
    early = Plain()
    drafter = LayerSkipDrafter(early, early.n_vocab)
    picks = Budget(3, lambda confidence, token=0: Answer.CONTINUE, lambda row, path: Pick(int(row.argmax()), 0.9, None))
    draft = drafter.propose(np.array([1, 2], dtype=np.int32), picks)
    assert (drafter.name, drafter.is_model_free, len(draft), early.drafts) == ("layerskip", False, 3, [0, 0, 0])


def layerskip_pair(**changes: object) -> Pair:
    return replace(load_registry()["demo"], draft=None, drafters=("layerskip",), **changes)  # type: ignore[arg-type]


def test_every_drafted_token_is_verified_from_what_drafting_it_computed() -> None:
    engine = LoadedEngine(layerskip_pair(), Options(fixed_k=4))
    backend = engine.decoder.target.backend
    before = backend.n_reused  # type: ignore[attr-defined]
    stats = list(engine.reply([Message("user", QUESTIONS[0])], Sampling(temperature=0), max_tokens=60))[-1].stats
    assert stats is not None
    assert stats.draft_n > 0
    assert backend.n_reused - before == stats.draft_n + sum(n for k, n in stats.k.items() if k)  # type: ignore[attr-defined]
    engine.close()


def test_the_exit_layer_is_the_files_unless_the_pair_names_another() -> None:
    for pair, layer in ((layerskip_pair(), 4), (layerskip_pair(exit_layer=7), 7)):
        engine = LoadedEngine(pair)
        assert engine.decoder.target.backend.exit_layer == layer  # type: ignore[attr-defined]
        engine.close()


def test_a_registry_may_name_the_exit_layer(tmp_path: Path) -> None:
    path = tmp_path / "models.toml"
    path.write_text('[pairs.a]\ntarget = "a.gguf"\ndrafters = ["layerskip"]\nexit_layer = 3\n')
    assert (load_registry(path)["a"].exit_layer, load_registry(path)["a"].drafters) == (3, ("layerskip",))
    path.write_text('[pairs.a]\ntarget = "a.gguf"\nexit_layer = "3"\n')
    with pytest.raises(RegistryError, match="'exit_layer' must be of type int, not str"):
        load_registry(path)


@pytest.mark.parametrize("layer", [12, -3])
def test_an_exit_layer_out_of_range_is_one_sentence(layer: int) -> None:
    with pytest.raises(
        ModelError, match=rf"exit_layer is {layer}, but target.gguf has 12 layers. Set it to one from 1 to 11."
    ):
        LoadedEngine(layerskip_pair(exit_layer=layer))


MEMORY = """
import psutil, sys
from dataclasses import replace
from runtime.engine import Message, Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.models.registry import load_registry
pair = replace(load_registry()["demo"], draft=None)
engine = LoadedEngine(pair, Options(drafters=tuple(sys.argv[1:]), fixed_k=4 if sys.argv[1:] else None))
list(engine.reply([Message("user", "What does os.path.join do?")], Sampling(temperature=0)))
print(psutil.Process().memory_full_info().uss)
"""


def test_it_takes_no_memory_for_weights_or_cache_of_its_own() -> None:
    """Far less than the first layers' part of the cache."""
    with_it, without = (
        int(subprocess.check_output([sys.executable, "-c", MEMORY, *names], text=True)) for names in (["layerskip"], [])
    )
    assert with_it - without < 0.05 * without


def test_a_prompt_of_several_pieces_is_read_once() -> None:
    engine = LoadedEngine(layerskip_pair(), Options(1024, fixed_k=3))
    backend = engine.decoder.target.backend
    before = backend.n_decoded  # type: ignore[attr-defined]
    stats = list(engine.reply([Message("user", "word " * 300)], Sampling(temperature=0), max_tokens=6))[-1].stats
    assert stats is not None
    assert stats.draft_n > 0
    assert backend.n_decoded - before <= stats.prompt_n + 2 * stats.draft_n + stats.predicted_n  # type: ignore[attr-defined]
    engine.close()
