"""A head or a target that nothing is known of is tried in a process of its own; where that is lost, the target answers
without, and it is not tried again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.instruments.architectures.writer import write_drafting, write_family
from bench.instruments.heads import PROMPT, HeadShape, block_head_for, head_for, write_head
from bench.instruments.shapes import TINY, write_random
from runtime.core.children import Child
from runtime.core.pressure import MemoryPool, Reading
from runtime.engine import Ids, Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.loading import probing
from runtime.models import mtp
from runtime.models.registry import Pair

TRIED = "was tried in a process of its own, where llama.cpp 0.3.36 ended the process (signal"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The processes that were started to try something."""
    found: list[list[str]] = []

    class Noted(Child):
        def __init__(self, module: str, *args: object, **more: Any) -> None:
            found.append([module, *map(str, args)])
            super().__init__(module, *args, **more)

    monkeypatch.setattr(probing, "Child", Noted)
    return found


def answered(pair: Pair, *drafters: str) -> tuple[int, str]:
    """How many tokens were drafted, and what was left out; the target answers in any case."""
    engine = LoadedEngine(pair, Options(512, drafters, fixed_k=3, threads=1, fast=True))
    chunks = list(engine.reply(Ids(PROMPT), Sampling(temperature=0.0), 12))
    stats, left_out = chunks[-1].stats, engine.facts.left_out
    engine.close()
    assert sum(len(chunk.tokens) for chunk in chunks) == 12
    assert stats is not None
    return stats.draft_n, left_out


@pytest.mark.parametrize("family", ["qwen2", "gemma3"])
def test_a_target_that_shows_no_layers_ends_another_process_once(
    family: str, tmp_path: Path, started: list[list[str]]
) -> None:
    target = write_family(family, tmp_path)
    pair = Pair("any", target, write_head(tmp_path / "head.gguf", head_for(target)))
    for _ in range(2):
        n_drafted, left_out = answered(pair, "eagle")
        assert n_drafted == 0
        assert left_out.startswith(f"the draft head was left out: head.gguf with {family}.gguf {TRIED}")
    assert len(started) == 1
    (tmp_path / "head.gguf").touch()  # another file, as far as one can tell
    answered(pair, "eagle")
    assert len(started) == 2


@pytest.mark.parametrize(("drafter", "make"), [("eagle", head_for), ("dflash", block_head_for)])
def test_a_target_that_nobody_tried_and_that_shows_its_layers_is_drafted_for(
    drafter: str, make: Callable[[Path], HeadShape], tmp_path: Path, started: list[list[str]]
) -> None:
    target = write_family("bailingmoe3", tmp_path)
    head = write_head(tmp_path / "head.gguf", make(target))
    for _ in range(2):
        n_drafted, left_out = answered(Pair("any", target, head), drafter)
        assert (n_drafted > 0, left_out) == (True, "")
    assert len(started) == 1


def test_what_was_tried_with_this_version_is_not_tried_again(tmp_path: Path, started: list[list[str]]) -> None:
    target = write_random(tmp_path / "target.gguf", replace(TINY, layers=4))
    head = write_head(tmp_path / "head.gguf", head_for(target))
    assert answered(Pair("any", target, head), "eagle")[0] > 0
    assert answered(Pair("any", write_drafting("glm4moe", tmp_path)), "mtp")[0] > 0
    assert not started


def test_with_another_version_of_the_library_everything_is_tried_once(
    tmp_path: Path, started: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "TRIED_WITH", "0.0.1")
    target = write_random(tmp_path / "target.gguf", replace(TINY, layers=4))
    head = write_head(tmp_path / "head.gguf", head_for(target))
    own = Pair("any", write_drafting("glm4moe", tmp_path))
    for _ in range(2):
        assert answered(Pair("any", target, head), "eagle")[0] > 0
        assert answered(own, "mtp")[0] > 0
    assert len(started) == 2


def test_a_drafting_layer_that_ends_the_library_ends_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "TRIED_WITH", "0.0.1")
    monkeypatch.setattr(mtp, "UNUSABLE", {})
    monkeypatch.setattr(mtp, "DRAFTING", mtp.DRAFTING | {"deepseek4"})
    target = write_drafting("deepseek4mtp", tmp_path)
    n_drafted, left_out = answered(Pair("any", target), "mtp")
    assert n_drafted == 0
    assert left_out.startswith(f"the draft head was left out: the drafting layer of deepseek4mtp.gguf {TRIED}")


def test_a_head_whose_header_says_more_than_those_that_were_tried_is_tried(
    tmp_path: Path, started: list[list[str]]
) -> None:
    target = write_random(tmp_path / "target.gguf", replace(TINY, layers=4))
    known = write_head(tmp_path / "known.gguf", head_for(target)).read_bytes()
    (tmp_path / "head.gguf").write_bytes(known.replace(b"eagle3.rope.freq_base", b"eagle3.rope.freq_bass"))
    assert answered(Pair("any", target, tmp_path / "head.gguf"), "eagle")[0] > 0
    assert len(started) == 1


def test_a_trial_that_takes_too_long_is_given_up_and_not_remembered(
    tmp_path: Path, started: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "MAX_SECONDS", 0.0)
    target = write_family("qwen2", tmp_path)
    pair = Pair("any", target, write_head(tmp_path / "head.gguf", head_for(target)))
    for _ in range(2):
        assert answered(pair, "eagle")[1].endswith("took more than 0 seconds")
    assert len(started) == 2


def test_nothing_is_tried_for_which_memory_is_short(
    tmp_path: Path, started: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "MemoryReader", lambda: lambda: Reading((MemoryPool("machine", 10, 1000),)))
    target = write_family("qwen2", tmp_path)
    pair = Pair("any", target, write_head(tmp_path / "head.gguf", head_for(target)))
    assert "qwen2.gguf has to be tried with it first, for which" in answered(pair, "eagle")[1]
    assert not started


def test_what_the_system_ended_is_tried_again(
    tmp_path: Path, started: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = write_family("qwen2", tmp_path)
    pair = Pair("any", target, write_head(tmp_path / "head.gguf", head_for(target)))
    monkeypatch.setattr(probing, "wait", lambda process, *more: process.kill())
    for _ in range(2):
        assert answered(pair, "eagle")[1].endswith("failed (signal 9)")
    assert len(started) == 2
