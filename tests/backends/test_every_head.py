"""What holds for heads of every kind: they change no token, alone or beside others, and what does not fit is refused by
name, while the target answers without it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from bench.instruments.architectures.writer import write_family
from bench.instruments.concurrent_replies import Case, alone, concurrently, n_different
from bench.instruments.heads import (
    PROMPT,
    block_head_for,
    head_for,
    replies_with_and_without,
    state_head_for,
    write_head,
    write_state_head,
)
from runtime.drafters.registry import networks
from runtime.engine import Ids, Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.loading.fit import FLOOR, Headroom, fit, spec_of
from runtime.loading.footprint import ContextSpec
from runtime.models import heads, own_heads
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.models.registry import Pair
from tests.support import tiny_target

target_file = tiny_target.target_file

SHAPES: dict[str, Callable[[Path], object]] = {
    "eagle": head_for,
    "dflash": block_head_for,
    "dspark": partial(block_head_for, rank=8),
    **{kind: partial(state_head_for, kind=kind) for kind in networks()},
}
KINDS = pytest.mark.parametrize("kind", SHAPES)
CASES: list[Case] = [
    (Ids(PROMPT[: 20 + 4 * i]), Sampling(temperature, seed=i), None) for i in range(3) for temperature in (0.0, 0.9)
]


def pair_with(kind: str, target: Path, folder: Path, /, **change: object) -> Pair:
    """Return the target with a random head of that kind, some of whose shape may be changed."""
    shape, write = replace(SHAPES[kind](target), **change), write_state_head if kind in networks() else write_head  # type: ignore[type-var]
    return Pair(kind, target, write(folder / "head.gguf", shape))  # type: ignore[operator]


def facts(path: Path | None) -> ModelFacts:
    assert path is not None
    return ModelFacts(read_model_header(path))


def left_out(pair: Pair, *drafters: str) -> str:
    """Return why the head is left out; the target answers all the same."""
    engine = LoadedEngine(pair, Options(512, drafters or None, threads=1))
    chunks = list(engine.reply(Ids(PROMPT), Sampling(seed=1), 4))
    engine.close()
    assert sum(len(chunk.tokens) for chunk in chunks) == 4
    return engine.facts.left_out


@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize(
    "sampling", [Sampling(temperature=0.0), Sampling(temperature=0.8, seed=5)], ids=["greedy", "seeded"]
)
@pytest.mark.parametrize(
    ("kind", "change"),
    [*((kind, {}) for kind in SHAPES), ("dspark", {"words": 64}), ("dspark", {"from_known": False})],
    ids=[*SHAPES, "dspark of few words", "dspark without the known token's row"],
)
def test_a_random_head_never_changes_a_token(
    kind: str, change: dict[str, object], target_file: Path, tmp_path: Path, sampling: Sampling, slots: int
) -> None:
    pair = pair_with(kind, target_file, tmp_path, **change)
    (plain, drafting), n_drafted = replies_with_and_without(pair, kind, sampling, slots)
    assert plain == drafting
    assert n_drafted > 0


@pytest.mark.parametrize("k", [3, None], ids=["drafts of three", "as it pays"])
@pytest.mark.parametrize("kind", [*SHAPES, "glm4moe", "qwen35mtp"])  # the last two have drafting layers of their own
def test_replies_at_once_say_what_each_says_alone(kind: str, k: int | None, target_file: Path, tmp_path: Path) -> None:
    pair = pair_with(kind, target_file, tmp_path) if kind in SHAPES else Pair("mtp", write_family(kind, tmp_path))
    options = Options(512, (), threads=1, slots=4, fast=True)
    plain = LoadedEngine(pair, options)
    whole = alone(plain, CASES, 24)
    plain.close()
    engine = LoadedEngine(pair, replace(options, drafters=(pair.name,), fixed_k=k))
    together = concurrently(engine, CASES, 24, 3, seed=1)
    engine.close()
    assert not n_different(together, whole)
    n_drafted = sum(each.last.stats.draft_n for each in together.values() if each.last and each.last.stats)
    assert n_drafted > 0 or k is None


STATES = {"width": 128}, "it reads states of 128 values, and the target's have 64"
WORDS = {"vocab": 1000}, "it is for 1,000 tokens, and the target has 512"
UNKNOWN = {"words": 64, "unknown": 1000}, "it drafts tokens that its target does not have"


@pytest.mark.parametrize(
    ("kind", "change", "clause"),
    [
        *((kind, *each) for kind in ("eagle", "dflash", "medusa") for each in (STATES, WORDS, UNKNOWN)),
        ("eagle", {"layers": (0, 1)}, "it names 2 layers of its target instead of 3"),
        ("eagle", {"layers": (0, 1, 4)}, "it reads layer 4 of a target that has 4"),
        ("eagle", {"depth": 2}, "it has 2 layers, and an EAGLE-3 head has one"),
        ("dflash", {"layers": ()}, "it names no layers of its target"),
        ("dflash", {"layers": (0, 4)}, "it reads layer 4 of a target that has 4"),
        ("dflash", {"block": 1}, "it does not state how many tokens it drafts at once"),
        ("dflash", {"mask": None}, "it does not state which token marks a token to be drafted"),
        ("dflash", {"extra": "selector_hidden.weight"}, "it is a DFlash 2 head, a variant of DFlash that Slipstream"),
        ("dspark", UNKNOWN[0], UNKNOWN[1]),
        ("dspark", {"rank": 0, "extra": "markov_w1.weight"}, "its Markov head is incomplete"),
        ("dspark", {"extra": "blk.0.hc_attn_fn.weight"}, "it is a DeepSeek 4 DSpark head, a variant of DFlash that"),
        ("medusa", {"heads": 16}, "it has 16 heads, and a draft has at most 15 tokens"),
        ("medusa", {"heads": 0}, "it does not state how many heads and layers it has"),
        ("medusa", {"kind": "octopus"}, "'octopus' is not a kind of head that this Slipstream knows (eagle1, hydra"),
    ],
    ids=str,
)
def test_a_head_that_cannot_draft_is_refused_and_the_target_answers(
    kind: str, change: dict[str, object], clause: str, target_file: Path, tmp_path: Path
) -> None:
    pair = pair_with(kind, target_file, tmp_path, **change)
    assert pair.draft is not None
    assert clause in heads.unfit(facts(pair.draft), facts(target_file), pair.draft)
    assert f"head.gguf is not a head for target.gguf: {clause}" in left_out(pair)


def test_a_head_of_another_kind_than_was_asked_for_is_told(target_file: Path, tmp_path: Path) -> None:
    assert left_out(pair_with("eagle", target_file, tmp_path), "dflash") == "head.gguf is not a DFlash head"


@KINDS
@pytest.mark.parametrize("share", [0.01, 0.05, 0.5, 0.999])
def test_a_file_that_is_cut_short_is_a_sentence(kind: str, share: float, target_file: Path, tmp_path: Path) -> None:
    pair = pair_with(kind, target_file, tmp_path)
    assert pair.draft is not None
    pair.draft.write_bytes(pair.draft.read_bytes()[: int(share * pair.draft.stat().st_size)])
    said = left_out(pair)
    assert said.startswith("the draft head was left out: head.gguf is ")
    assert "damaged" in said or "incomplete" in said


@KINDS
def test_memory_for_the_target_alone_leaves_the_head_out(kind: str, target_file: Path, tmp_path: Path) -> None:
    spec = spec_of(target_file, pair_with(kind, target_file, tmp_path).draft, ContextSpec(512), FLOOR)
    assert spec is not None
    both, alone = spec.needs(512, True), spec.needs(512, False)
    assert fit(spec, Headroom(both, 0, 0), "target.gguf").with_draft
    plan = fit(spec, Headroom(both - 1, 0, 0), "target.gguf")
    assert (plan.with_draft, plan.n_bytes) == (False, alone)
    assert plan.text.startswith("left out the head: all of it needs ")


STATES_OF = "targets of 512 tokens and width 64; reads layers 1, 2, 3"


@pytest.mark.parametrize(
    ("kind", "change", "said", "begins"),
    [
        ("eagle", {}, f"a head (eagle) for {STATES_OF}", "eagle"),
        ("dflash", {}, f"a head (dflash) for {STATES_OF}, 6 tokens at once", "dflash"),
        ("dspark", {}, f"a head (dspark) for {STATES_OF}, 6 tokens at once", "dflash"),
        ("hydra", {}, "3 heads (hydra) for a random target of 512 tokens and width 64", "hydra"),
        ("medusa", {"kind": "octopus"}, "not used: 'octopus' is not a kind of head", own_heads.UNKNOWN),
    ],
)
def test_what_a_head_is_for_is_said(
    kind: str, change: dict[str, object], said: str, begins: str, target_file: Path, tmp_path: Path
) -> None:
    pair = pair_with(kind, target_file, tmp_path, **change)
    assert pair.draft is not None
    assert heads.wanted_by(facts(pair.draft)).startswith(said)
    assert heads.begins_for(pair.draft) == begins


def test_what_a_file_without_a_head_is_for_is_said(target_file: Path, tmp_path: Path) -> None:
    assert heads.wanted_by(facts(write_family("qwen35mtp", tmp_path))) == "1 of its own layers, drafts by itself (mtp)"
    assert heads.wanted_by(facts(target_file)) == ""
