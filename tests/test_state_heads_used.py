"""Medusa and Hydra heads in use: what they never change, what they are refused for, what is said of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.instruments.concurrent_replies import Case, alone, concurrently, n_different
from bench.instruments.heads import PROMPT, random_weights, replies_with_and_without, state_head_for, write_state_head
from bench.instruments.planted import plant, prompts
from bench.instruments.planted_heads import plant_state_heads
from bench.instruments.shapes import DRAFT_10M, TINY, write_random
from runtime.drafters.registry import networks
from runtime.engine import Ids, Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.memory.fit import FLOOR, Headroom, fit, spec_of
from runtime.memory.footprint import ContextSpec
from runtime.models import own_heads
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.models.heads import begins_for, unfit, wanted_by
from runtime.models.registry import Pair
from tests.support import tiny_target

target_file = tiny_target.target_file

KINDS = pytest.mark.parametrize("kind", sorted(networks()))


@KINDS
@pytest.mark.parametrize(
    "sampling", [Sampling(temperature=0.0), Sampling(temperature=0.8, seed=5)], ids=["greedy", "seeded"]
)
@pytest.mark.parametrize("slots", [1, 3])
def test_random_heads_never_change_a_token(
    kind: str, target_file: Path, tmp_path: Path, sampling: Sampling, slots: int
) -> None:
    file = write_state_head(tmp_path / "head.gguf", state_head_for(target_file, kind))
    (plain, drafting), n_drafted = replies_with_and_without(Pair("any", target_file, file), kind, sampling, slots)
    assert plain == drafting
    assert n_drafted > 0


CASES: list[Case] = [
    (Ids(PROMPT[: 20 + 4 * i]), Sampling(temperature, seed=i), None) for i in range(3) for temperature in (0.0, 0.9)
]


@KINDS
@pytest.mark.parametrize("k", [3, None], ids=["drafts of three", "as it pays"])
def test_replies_that_share_passes_say_what_each_says_alone(
    kind: str, k: int | None, target_file: Path, tmp_path: Path
) -> None:
    pair = Pair("any", target_file, write_state_head(tmp_path / "head.gguf", state_head_for(target_file, kind)))
    options = Options(512, (), threads=1, slots=4, fast=True)
    plain = LoadedEngine(pair, options)
    whole = alone(plain, CASES, 24)
    plain.close()
    engine = LoadedEngine(pair, replace(options, drafters=(kind,), fixed_k=k))
    together = concurrently(engine, CASES, 24, 3, seed=1)
    engine.close()
    assert not n_different(together, whole)


@KINDS
def test_planted_heads_are_right_where_they_should_be(kind: str, tmp_path: Path) -> None:
    pair, prompt = plant(tmp_path / "pair", DRAFT_10M, DRAFT_10M, 1.0, words=256), prompts(DRAFT_10M.vocab, [5], 256)[0]
    said, shares = list[str](), list[float]()
    for acceptance in (None, 1.0, 0.6):
        planted = plant_state_heads(pair, DRAFT_10M, kind, acceptance or 1.0, words=256)
        engine = LoadedEngine(
            planted, Options(512, (kind,) if acceptance else (), fixed_k=3 if acceptance else None, threads=1)
        )
        chunks = list(engine.reply(prompt, Sampling(temperature=0.0), 80))
        said.append("".join(chunk.text for chunk in chunks))
        stats = chunks[-1].stats
        assert stats is not None
        if acceptance:
            shares.append(stats.draft_n_accepted / stats.draft_n)
        engine.close()
    assert said[1:] == said[:1] * 2
    assert shares[0] == 1.0
    assert 0.2 < shares[1] < 0.8


@pytest.mark.parametrize(
    ("change", "clause"),
    [
        ({"width": 128}, "it reads states of 128 values, and the target's have 64"),
        ({"vocab": 1000}, "it is for 1,000 tokens, and the target has 512"),
        ({"heads": 16}, "it has 16 heads, and a draft has at most 15 tokens"),
        ({"heads": 0}, "it does not state how many heads and layers it has"),
        ({"kind": "octopus"}, "'octopus' is not a kind of head that this Slipstream knows (eagle1, hydra, medusa)"),
        ({"words": 64, "unknown": 1000}, "it drafts tokens that its target does not have"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_heads_for_another_target_are_refused_and_the_target_answers(
    target_file: Path, tmp_path: Path, change: dict[str, object], clause: str
) -> None:
    file = write_state_head(tmp_path / "head.gguf", replace(state_head_for(target_file), **change))  # type: ignore[arg-type]
    said = left_out(Pair("any", target_file, file), Options(512, threads=1))
    assert said == f"the draft head was left out: head.gguf is not a head for target.gguf: {clause}"


def left_out(pair: Pair, options: Options) -> str:
    """Why the head is left out; the target answers all the same."""
    engine = LoadedEngine(pair, options)
    chunks = list(engine.reply(Ids(PROMPT), Sampling(), 4))
    found = engine.facts.left_out
    engine.close()
    assert sum(len(chunk.tokens) for chunk in chunks) == 4
    return found


@pytest.mark.parametrize(
    ("change", "clause"),
    [
        ({"head.2.0.bias": None}, "it has no head.2.0.bias"),
        ({"head.1.0.weight": (64, 32)}, "head.1.0.weight has the size (64, 32), not (64, 64)"),
        ({"head.0.0.norm.weight": (64,)}, "it has the tensor 'head.0.0.norm.weight', which no medusa head has"),
        ({"output.weight": (100, 64)}, "it drafts 100 tokens and does not state which"),
        ({"head.0.output.weight": (512, 64), "head.1.output.weight": (64, 64)}, "head.1.output.weight has the size"),
    ],
    ids=["lacking", "misshapen", "unknown", "words", "words of two heads"],
)
def test_wrong_tensors_are_named(
    target_file: Path, tmp_path: Path, change: dict[str, tuple[int, ...] | None], clause: str
) -> None:
    shape = state_head_for(target_file)
    weights = random_weights(shape)
    for name, size in change.items():
        if size is None:
            del weights[name]
        else:
            weights[name] = np.zeros(size, dtype=np.float32)
    file = write_state_head(tmp_path / "head.gguf", shape, weights=weights)
    target = ModelFacts(read_model_header(target_file))
    assert unfit(ModelFacts(read_model_header(file)), target, file).startswith(clause)


def test_what_heads_are_for_is_said(target_file: Path, tmp_path: Path) -> None:
    file = write_state_head(tmp_path / "head.gguf", state_head_for(target_file, "hydra"))
    said = wanted_by(ModelFacts(read_model_header(file)))
    assert said == "3 heads (hydra) for a random target of 512 tokens and width 64"
    assert begins_for(file) == "hydra"
    unknown = write_state_head(tmp_path / "unknown.gguf", state_head_for(target_file, "octopus"))
    assert begins_for(unknown) == own_heads.UNKNOWN
    assert wanted_by(ModelFacts(read_model_header(unknown))).startswith("not used: 'octopus' is not a kind of head")


def test_a_large_vocabulary_is_drafted_in_part_where_the_file_has_no_output(tmp_path: Path) -> None:
    """Reading all of the target's matrix for every draft would cost more than the draft is worth."""
    target = ModelFacts(read_model_header(write_random(tmp_path / "target.gguf", replace(TINY, vocab=49_152))))
    file = write_state_head(tmp_path / "head.gguf", state_head_for(tmp_path / "target.gguf"))
    assert own_heads.n_outputs(ModelFacts(read_model_header(file))) == 12_288
    assert unfit(ModelFacts(read_model_header(file)), target, file) == ""


@KINDS
def test_memory_for_the_target_alone_leaves_the_heads_out(kind: str, target_file: Path, tmp_path: Path) -> None:
    file = write_state_head(tmp_path / "head.gguf", state_head_for(target_file, kind))
    spec = spec_of(target_file, file, ContextSpec(512), FLOOR)
    assert spec is not None
    both, alone = spec.needs(512, True), spec.needs(512, False)
    assert both > alone + file.stat().st_size
    assert fit(spec, Headroom(both, 0, 0), "target.gguf").with_draft
    plan = fit(spec, Headroom(both - 1, 0, 0), "target.gguf")
    assert (plan.with_draft, plan.n_bytes) == (False, alone)
    assert plan.text.startswith("left out the head: all of it needs ")


@KINDS
@pytest.mark.parametrize("share", [0.01, 0.5, 0.99])
def test_a_file_that_is_cut_short_is_a_sentence(kind: str, share: float, target_file: Path, tmp_path: Path) -> None:
    file = write_state_head(tmp_path / "cut.gguf", state_head_for(target_file, kind))
    file.write_bytes(file.read_bytes()[: int(share * file.stat().st_size)])
    said = left_out(Pair("any", target_file, file), Options(512, threads=1))
    assert said.startswith("the draft head was left out: cut.gguf is ")
    assert "damaged" in said or "incomplete" in said
