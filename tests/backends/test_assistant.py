"""Gemma 4's assistants: the same text as plain decode, the right inputs, and refusals by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader

from bench.instruments.architectures.writer import write_family
from bench.instruments.concurrent_replies import Case, alone, concurrently, n_different
from bench.instruments.heads import PROMPT, replies_with_and_without
from runtime.backends.contexts import open_backend
from runtime.backends.file_rows import find_rows
from runtime.backends.heads.llama_heads import AssistantBackend
from runtime.backends.model import LlamaModel
from runtime.core.draft import Draft, Tokens
from runtime.core.errors import HeadError
from runtime.engine import Ids, Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.engine.pairing import Target
from runtime.models import heads
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.models.registry import Pair
from tests.support.assistants import assistant_for, write_assistant
from tests.support.waiting import wait_for

TARGETS = pytest.mark.parametrize("family", ["gemma4", "gemma4moe"])
CASES: list[Case] = [
    (Ids(PROMPT[: 20 + 4 * i]), Sampling(temperature, seed=i), None) for i in range(3) for temperature in (0.0, 0.9)
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gemma4")


def pair_of(family: str, folder: Path, **change: object) -> Pair:
    path = folder / f"{family}.gguf"
    target = path if path.exists() else write_family(family, folder)
    name = f"{family}-assistant{'-changed' if change else ''}.gguf"
    return Pair(family, target, write_assistant(folder / name, assistant_for(target, **change)))


def facts(path: Path | None) -> ModelFacts:
    assert path is not None
    return ModelFacts(read_model_header(path))


@TARGETS
@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize(("temperature", "seed"), [(0.0, None), (0.0, 1), (0.8, 5)])
def test_the_text_is_plain_decodes(family: str, slots: int, temperature: float, seed: int | None, folder: Path) -> None:
    """With a seed nothing is drafted, as these small targets round differently in wider passes."""
    sampling = Sampling(temperature, seed=seed)
    (plain, drafting), n_drafted = replies_with_and_without(pair_of(family, folder), "assistant", sampling, slots)
    assert plain == drafting
    assert n_drafted > 0 or seed is not None


@TARGETS
@pytest.mark.parametrize("k", [3, None], ids=["drafts of three", "as it pays"])
def test_replies_at_once_say_what_each_says_alone(family: str, k: int | None, folder: Path) -> None:
    pair, options = pair_of(family, folder), Options(512, (), threads=1, slots=4, fast=True)
    with closing(LoadedEngine(pair, options)) as plain:
        whole = alone(plain, CASES, 24)
    with closing(LoadedEngine(pair, replace(options, drafters=("assistant",), fixed_k=k))) as engine:
        together = concurrently(engine, CASES, 24, 3, seed=1)
    assert not n_different(together, whole)
    n_drafted = sum(each.last.stats.draft_n for each in together.values() if each.last and each.last.stats)
    assert n_drafted > 0 or k is None


@pytest.fixture(params=[1, 3])
def open_pair(request: pytest.FixtureRequest, folder: Path) -> Iterator[tuple[Any, AssistantBackend, Path]]:
    """A target's context and its assistant's, whose attention adds nothing, and the assistant's file."""
    pair = pair_of("gemma4", folder, missing="")
    assert pair.draft is not None
    with ExitStack() as stack:
        target = LlamaModel(pair.target)
        stack.callback(target.close)
        backend = open_backend(target, 512, 5, 64, n_seats=request.param)
        stack.callback(backend.close)
        backend.set_slots(request.param)
        weights = LlamaModel(pair.draft, is_head=True)
        stack.callback(weights.close)
        assistant = AssistantBackend(weights, backend, request.param, 4)
        stack.callback(assistant.close)
        yield backend, assistant, pair.draft


def ids(*extra: int, start: int = 300) -> Tokens:
    return np.array([*range(start, start + 40), *extra], dtype=np.int32)


def test_a_draft_is_the_same_whatever_was_rejected_before_it(open_pair: tuple[Any, AssistantBackend, Path]) -> None:
    backend, assistant, _ = open_pair
    backend.forward(ids(), Draft((7, 8, 9)))
    assert assistant.knows(ids(5))
    first = assistant.forward(ids(5)).copy()
    second = assistant.forward(ids(5, 6)).copy()
    assert np.array_equal(assistant.forward(ids(5, 6)), second)  # from the start again
    assert np.array_equal(assistant.forward(ids(5)), first)
    backend.forward(ids(9), Draft((1, 2)))  # another conversation's end
    backend.forward(ids(), Draft((5, 6)))
    assert np.array_equal(assistant.forward(ids(5)), first)


def test_a_draft_depends_on_the_state_the_token_and_what_is_cached(
    open_pair: tuple[Any, AssistantBackend, Path],
) -> None:
    backend, assistant, _ = open_pair
    backend.forward(ids())
    first = assistant.forward(ids(5)).copy()
    assert not np.array_equal(assistant.forward(ids(6)), first)
    other = ids(5)
    other[3] = 400
    backend.forward(other[:-1])
    assert not np.array_equal(assistant.forward(other), first)


def test_its_target_says_the_same_after_a_draft(open_pair: tuple[Any, AssistantBackend, Path]) -> None:
    backend, assistant, _ = open_pair
    backend.forward(ids(), Draft((7, 8)))
    whole = backend.forward(ids(5, 6), Draft((1, 2))).copy()
    backend.forward(ids(), Draft((7, 8)))
    for n in (1, 2, 3):
        assistant.forward(ids(5, 6, 7)[: 40 + n])
    assert np.array_equal(backend.forward(ids(5, 6), Draft((1, 2))), whole)


def test_rows_are_what_the_file_computes(folder: Path) -> None:
    """With layers that add nothing, it is two products and a norm, which can be computed here."""
    target = write_family("gemma4", folder)
    path = write_assistant(folder / "flat.gguf", assistant_for(target, is_flat=True))
    with ExitStack() as stack:
        model = LlamaModel(target)
        stack.callback(model.close)
        backend = open_backend(model, 512, 5, 64)
        stack.callback(backend.close)
        weights = LlamaModel(path, is_head=True)
        stack.callback(weights.close)
        assistant = AssistantBackend(weights, backend, 1, 4)
        stack.callback(assistant.close)
        shown: list[Any] = []
        feed = backend.shown.listener
        assert feed is not None
        backend.shown.listener = lambda tokens, start, states: (shown.append(states), feed(tokens, start, states))
        backend.forward(ids())
        tensors = {each.name: np.array(each.data, dtype=np.float32) for each in GGUFReader(path).tensors}
        vectors = find_rows(target, "token_embd.weight")
        assert vectors is not None
        state = shown[-1][-1]
        for n, vector in enumerate(vectors.floats(ids(5, 6)[40:]) * np.float32(model.n_embd**0.5), start=1):
            hidden = tensors["nextn.pre_projection.weight"] @ np.concatenate([vector, state])
            normed = hidden / np.sqrt((hidden**2).mean() + 1e-5) * tensors["output_norm.weight"]
            found = assistant.forward(ids(5, 6)[: 40 + n])[0]
            assert np.allclose(found, tensors["token_embd.weight"] @ normed, atol=0.05)
            state = tensors["nextn.post_projection.weight"] @ normed


@pytest.mark.parametrize(
    ("change", "clause"),
    [
        ({"width": 64}, "it reads states of 64 values, and the target's have 128"),
        ({"vocab": 1000}, "it is for 1,000 tokens, and the target has 512"),
        ({"length": 128}, "its attention heads have 128 values, and the target's 64"),
        ({"missing": "nextn.post_projection.weight"}, "its post_projection is missing or has a wrong shape"),
    ],
    ids=str,
)
def test_one_for_another_target_is_refused_by_name(change: dict[str, object], clause: str, tmp_path: Path) -> None:
    pair = pair_of("gemma4", tmp_path, **change)
    assert pair.draft is not None
    assert clause in heads.unfit(facts(pair.draft), facts(pair.target), pair.draft)
    with closing(LoadedEngine(pair, Options(512, threads=1))) as engine:
        assert clause in engine.facts.left_out
        assert sum(len(chunk.tokens) for chunk in engine.reply(Ids(PROMPT), Sampling(seed=1), 4)) == 4


def test_a_target_of_another_family_is_told(tmp_path: Path) -> None:
    assistant = pair_of("gemma4", tmp_path).draft
    target = write_family("gemma3", tmp_path)
    assert assistant is not None
    assert "an assistant for Gemma 4 targets of 512 tokens and width 128" in heads.wanted_by(facts(assistant))
    head = replace(assistant_for(target), length=facts(target).own("attention.key_length"))
    path = write_assistant(tmp_path / "other.gguf", head)
    assert "it is an assistant for Gemma 4, and the target is a gemma3 model" in Target(Pair("x", target)).refusal(path)


def test_what_ends_llama_cpp_is_found_in_a_process_of_its_own(tmp_path: Path) -> None:
    pair = pair_of("gemma4", tmp_path, missing="blk.1.layer_output_scale.weight")
    with closing(LoadedEngine(pair, Options(512, threads=1))) as engine:
        assert "the draft head was left out" in engine.facts.left_out


def test_it_is_not_opened_again_while_its_target_may_be_replying(folder: Path) -> None:
    with closing(LoadedEngine(pair_of("gemma4", folder), Options(512, drafters=("assistant",), threads=1))) as engine:
        draft = engine._loaded.draft
        assert draft is not None
        draft.close()
        with pytest.raises(HeadError, match="used again after the next start"):
            wait_for(lambda: draft.is_open, draft.reopen)
