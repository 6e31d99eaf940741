"""A draft model that cannot pay, however often it is right, takes no memory and reads no prompt."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.models.distill import settle
from runtime.core.backend import Backend
from runtime.core.errors import DraftError
from runtime.engine import Options
from runtime.engine.loaded import LoadedEngine
from runtime.engine.pairing import Target
from runtime.loading import calibration
from runtime.loading.calibration import AGAIN, AGREED, Calibration, found_never, known_never, why_never
from runtime.loading.neighbours import Neighbours
from runtime.loading.profile_cache import ProfileCache
from runtime.models.registry import Pair, load_registry
from runtime.speculative.control.costs import PassCosts


def costs(*milliseconds: float) -> PassCosts:
    """Passes over 1, 2, ... rows."""
    table = PassCosts()
    for width, each in enumerate(milliseconds, start=1):
        table.set(width, each / 1e3)
    return table


QWEN = costs(30.9, 59.0, 79.5, 85.9, 103.0, 120.0)  # Qwen2.5-Coder 1.5B, Q4_K_M, on two cores
DRAFT = 0.0202  # seconds of a token of the 0.5B


def test_two_numbers_say_that_no_acceptance_can_pay() -> None:
    why = why_never(QWEN, DRAFT, 5)
    assert "a draft token takes 20.2 ms and checking one" in why
    assert "ms more, a plain token 30.9 ms" in why


@pytest.mark.parametrize(("draft", "pays"), [(0.001, True), (0.0130, True), (0.0132, False)])
def test_it_may_pay_at_the_length_that_saves_most(draft: float, pays: bool) -> None:
    """Five drafts in a pass of 120 ms save 65.4 ms."""
    assert (why_never(QWEN, draft, 5) == "") == pays


def test_what_was_measured_too_little_is_not_judged() -> None:
    """Of a model whose passes take long, wider ones are only guessed."""
    assert not why_never(costs(300.0), 0.3, 12)
    assert not why_never(costs(300.0, 600.0), 0.3, 12)


def test_what_a_draft_model_cannot_write_counts() -> None:
    assert not why_never(QWEN, 0.001, 5, 0.95)
    why = why_never(QWEN, 0.001, 5, 0.5)
    assert "cannot pay here as it can write 50% of the words: a draft token takes 1 ms" in why


def test_a_share_of_words_is_remembered_with_the_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache = ProfileCache("test")
    for _ in range(AGREED):
        assert found_never(cache, QWEN, 0.001, 5, 0.5)
    assert "50%" in known_never(cache, QWEN, 5)
    assert not found_never(cache, QWEN, 0.001, 5)
    assert not known_never(cache, QWEN, 5)


def test_wider_passes_need_not_be_dearer() -> None:
    """Where sixteen rows take less than thirteen, as with the tiles of some kernels, a longer draft pays."""
    assert why_never(costs(10, 22, 34, 46), 0.001, 3)
    assert not why_never(costs(10, 22, 34, 20), 0.001, 3)


def test_it_is_not_opened_once_starts_agree_and_looked_at_again_where_passes_changed(tmp_path: Path) -> None:
    cache = ProfileCache("key", tmp_path)
    for _ in range(AGREED):
        assert not known_never(cache, QWEN, 5)
        assert found_never(cache, QWEN, DRAFT, 5)
    assert "20.2 ms" in known_never(cache, QWEN, 5)
    assert not known_never(cache, costs(30.9, 31.0, 32.0, 33.0), 3)  # a GPU, say
    assert not found_never(cache, QWEN, 0.001, 5)
    assert not known_never(cache, QWEN, 5)


def test_now_and_then_it_is_measured_again(tmp_path: Path) -> None:
    """Both starts that agreed may have been held up."""
    cache = ProfileCache("key", tmp_path)
    for _ in range(AGREED):
        found_never(cache, QWEN, DRAFT, 5)
    opened = [not known_never(cache, QWEN, 5) for _ in range(2 * AGAIN)]
    assert opened == [False] * (AGAIN - AGREED) + [True] * (AGAIN + AGREED)  # until it was measured
    found_never(cache, QWEN, DRAFT, 5)
    assert known_never(cache, QWEN, 5)


@pytest.mark.parametrize("kept", [{}, {"share": "much", "n_agreed": 9}, {"share": -1.0, "n_agreed": 9}])
def test_what_cannot_be_read_says_nothing(tmp_path: Path, kept: dict[str, object]) -> None:
    cache = ProfileCache("key", tmp_path)
    cache.write(kept)
    assert not known_never(cache, QWEN, 5)


ALONE = Options(threads=1)  # whatever else computes here, the same numbers of threads are tried in each start


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[int]:
    """The widths up to which was measured, with nothing remembered. These numbers are found: a draft token takes a
    second.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(Neighbours, "wait", lambda _: 0.0)
    monkeypatch.setattr(Neighbours, "are_calm", lambda _: True)
    widths = list[int]()

    def take(backend: Backend, max_width: int, *how: Any) -> Calibration:
        widths.append(max_width)
        return Calibration(1, 1, {1: 0.01, 2: 0.019, 4: 0.037} if max_width > 1 else {1: 1.0})

    monkeypatch.setattr(calibration, "take", take)
    monkeypatch.setattr(calibration, "change_since", lambda *how: 1.0)
    return widths


@pytest.fixture
def hopeless(taken: list[int]) -> Pair:
    """A target that is its own draft model, always right."""
    demo = load_registry()["demo"]
    return replace(demo, draft=demo.target)


def test_such_a_model_is_left_out_with_the_numbers_and_soon_not_even_opened(hopeless: Pair, taken: list[int]) -> None:
    opened = []
    for _ in range(AGREED + 1):
        seen = set[str]()
        engine = LoadedEngine(hopeless, ALONE, lambda what, share, seen=seen: seen.add(what) is None)  # type: ignore[misc]
        reason = engine.decoder.why_plain()
        assert reason.code == "cost"
        assert "the draft model was left out, because it cannot pay here" in engine.facts.left_out
        assert [each.name for each in engine.decoder.active.drafters if not each.is_model_free] == []
        engine.close()
        opened.append("draft" in seen)
    assert opened == [True] * AGREED + [False]
    assert sum(width > 1 for width in taken) == AGREED + 1  # who is to agree measures for itself


def test_nothing_is_concluded_while_others_compute(hopeless: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """The draft model stays, and the controller decides with what it measures in replies; so does the next start."""
    for busy in ("wait", "are_calm", ""):
        monkeypatch.setattr(Neighbours, "wait", lambda _, busy=busy: 0.9 if busy == "wait" else 0.0)
        monkeypatch.setattr(Neighbours, "are_calm", lambda _, busy=busy: busy != "are_calm")
        engine = LoadedEngine(hopeless, ALONE)
        is_there = "model" in [each.name for each in engine.decoder.active.drafters]
        engine.close()
        assert is_there == bool(busy)


def test_a_draft_length_that_a_person_chose_is_drafted_all_the_same(hopeless: Pair) -> None:
    engine = LoadedEngine(hopeless, replace(ALONE, fixed_k=2))
    assert "model" in [each.name for each in engine.decoder.active.drafters]
    engine.close()


def test_the_search_for_a_draft_model_says_it_without_measuring_acceptance(hopeless: Pair) -> None:
    target = Target(hopeless, prompts=())
    plain = target.open(None)
    try:
        with pytest.raises(DraftError, match="cannot pay here at any acceptance rate: a draft token takes"):
            target.try_out(plain, hopeless.target)
    finally:
        plain.close()


def test_a_trained_draft_that_cannot_pay_is_not_kept_for_that_reason(
    hopeless: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    job = SimpleNamespace(apart=[], target=hopeless.target)
    settle(Target(hopeless), job, hopeless.target)  # type: ignore[arg-type]
    assert "Not kept. It: no: the draft model was left out, because it cannot pay here" in capsys.readouterr().out
