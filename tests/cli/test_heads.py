"""Heads that cannot be used, on the command line: one sentence about each, and the target answers without."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.instruments.architectures.families import FAMILIES
from bench.instruments.architectures.writer import random_tensors, write, write_family
from bench.instruments.heads import (
    HeadShape,
    StateHeadShape,
    block_head_for,
    head_for,
    state_head_for,
    write_head,
    write_state_head,
)
from runtime.models.registry import load_registry
from tests.support.cli import QUESTION, failing, slipstream

pytestmark = pytest.mark.usefixtures("models_here")
TARGET = load_registry()["demo"].target
MAKERS = pytest.mark.parametrize("make", [head_for, block_head_for, state_head_for], ids=["eagle", "dflash", "medusa"])


def written(path: Path, shape: HeadShape | StateHeadShape) -> Path:
    """The file of a head of that shape."""
    return write_head(path, shape) if isinstance(shape, HeadShape) else write_state_head(path, shape)


def answered(*args: str, **more: object) -> str:
    """Standard error of a call that answers all the same, which is one line."""
    done = slipstream("run", QUESTION, "--max-tokens", "6", *args, **more)
    assert (done.returncode, bool(done.stdout.strip())) == (0, True), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr.strip()


def with_head(file: Path, **more: object) -> str:
    return answered("-m", str(TARGET), "--draft", str(file), **more)


@MAKERS
@pytest.mark.parametrize("share", [0.001, 0.5, 0.9999])
def test_a_head_cut_short(make: Callable[[Path], HeadShape | StateHeadShape], share: float, tmp_path: Path) -> None:
    whole = written(tmp_path / "whole.gguf", make(TARGET)).read_bytes()
    (tmp_path / "cut.gguf").write_bytes(whole[: int(share * len(whole))])
    assert "the draft head was left out: cut.gguf is incomplete" in with_head(tmp_path / "cut.gguf")


@pytest.mark.parametrize("n_bytes", [0, 3, 20])
def test_a_file_too_short_to_tell_what_it_was_is_refused_as_any_draft_is(n_bytes: int, tmp_path: Path) -> None:
    (tmp_path / "cut.gguf").write_bytes(write_head(tmp_path / "whole.gguf", head_for(TARGET)).read_bytes()[:n_bytes])
    said = failing("run", QUESTION, "-m", str(TARGET), "--draft", str(tmp_path / "cut.gguf"))
    assert "cut.gguf is not a GGUF file" in said or "cut.gguf is damaged or incomplete" in said


def test_a_target_that_shows_no_layers(tmp_path: Path) -> None:
    """Nothing is known of it, so it is tried in a process of its own, which the library ends."""
    target = write_family("qwen2", tmp_path)
    head = write_head(tmp_path / "head.gguf", head_for(target))
    said = answered("-m", str(target), "--draft", str(head), "--raw")
    assert "head.gguf with qwen2.gguf was tried in a process of its own, where llama.cpp" in said


@MAKERS
@pytest.mark.parametrize(
    ("change", "clause"),
    [
        ({"width": 128}, "it reads states of 128 values, and the target's have 384"),
        ({"vocab": 1000}, "it is for 1,000 tokens, and the target has 4,096"),
    ],
    ids=["another width", "another target"],
)
def test_a_head_that_does_not_fit(
    make: Callable[[Path], HeadShape | StateHeadShape], change: dict[str, Any], clause: str, tmp_path: Path
) -> None:
    file = written(tmp_path / "head.gguf", replace(make(TARGET), **change))
    assert f"head.gguf is not a head for target.gguf: {clause}." in with_head(file)


@pytest.mark.parametrize(
    ("extra", "clause"),
    [
        ("selector_hidden.weight", "it is a DFlash 2 head, a variant of DFlash"),
        ("blk.0.odd.weight", "could not be loaded"),
    ],
)
def test_a_head_of_an_unknown_variant(extra: str, clause: str, tmp_path: Path) -> None:
    file = write_head(tmp_path / "head.gguf", replace(block_head_for(TARGET), extra=extra))
    assert clause in with_head(file)


def test_a_draft_of_an_architecture_that_nobody_knows(tmp_path: Path) -> None:
    known = write_head(tmp_path / "head.gguf", head_for(TARGET)).read_bytes()
    (tmp_path / "medusa.gguf").write_bytes(known.replace(b"eagle3", b"medusa"))
    assert "medusa.gguf has the architecture 'medusa', which this version of llama.cpp cannot run" in with_head(
        tmp_path / "medusa.gguf"
    )


@pytest.mark.parametrize("name", ["qwen35mtp", "glm4moe"])
@pytest.mark.parametrize("asked", [(), ("--drafters", "mtp")], ids=["by itself", "asked for"])
def test_a_file_that_promises_a_drafting_layer_and_has_none(name: str, asked: tuple[str, ...], tmp_path: Path) -> None:
    tensors = {key: data for key, data in random_tensors(name, tmp_path).items() if not key.startswith("blk.4.")}
    target = write(tmp_path / "trunk.gguf", name, FAMILIES[name], tensors)
    said = answered("-m", str(target), "--draft", "off" if asked == () else "auto", "--raw", *asked)
    assert said.endswith("its header states a drafting layer, but the file lacks it.")


@MAKERS
def test_memory_for_the_target_alone(make: Callable[[Path], HeadShape | StateHeadShape], tmp_path: Path) -> None:
    """The settings want more of it left free beside a draft than there is."""
    (tmp_path / "slipstream").mkdir()
    wanted = "[memory]\ntight_bytes = 1_000_000_000_000_000\ntight_share = 1.0\n"
    (tmp_path / "slipstream" / "settings.toml").write_text(wanted)
    file = written(tmp_path / "head.gguf", make(TARGET))
    said = with_head(file, env=os.environ | {"XDG_CONFIG_HOME": str(tmp_path)})
    assert "memory is short: left out the head: all of it needs" in said
