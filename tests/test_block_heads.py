"""DFlash heads: a block of guesses from one pass, which never changes a token, and heads that are refused by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter

from bench.instruments.architectures.writer import write_family
from bench.instruments.heads import PROMPT, HeadShape, block_head_for, head_for, replies_with_and_without, write_head
from runtime.backends.contexts import open_backend
from runtime.backends.dflash import DflashBackend
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.backends.shared import SharedBackend
from runtime.core.draft import Draft, Logits, PassInput, Tokens
from runtime.core.draft import Path as Tentative
from runtime.core.drafter import CONTINUE, LAST, Answer, Budget, Pick
from runtime.drafters.dflash import DflashDrafter
from runtime.engine import Ids, Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.memory.fit import FLOOR, Headroom, fit, spec_of
from runtime.memory.footprint import ContextSpec
from runtime.models import heads
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.models.registry import Pair
from tests.support import tiny_target

target_file, target = tiny_target.target_file, tiny_target.target

N_CTX, N_ROWS, ROOM = 256, 9, 8
N_GUESSED = 5  # by a block of six
KINDS: dict[str, dict[str, object]] = {
    "few words": {"words": 64},
    "the target's words": {},
    "a table of its own": {"own_table": True},
    "a window": {"window": 8},
}


@pytest.fixture(scope="module", params=KINDS)
def head(
    request: pytest.FixtureRequest, target_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LlamaModel]:
    shape = replace(block_head_for(target_file), **KINDS[request.param])
    model = LlamaModel(write_head(tmp_path_factory.mktemp("head") / "head.gguf", shape), is_head=True)
    yield model
    model.close()


def facts(path: Path) -> ModelFacts:
    return ModelFacts(read_model_header(path))


def tokens(seed: int, n: int) -> Tokens:
    return np.random.default_rng(seed).integers(0, tiny_target.TARGET.vocab, n).astype(np.int32)


def beside(backend: LlamaBackend, head: LlamaModel, n: int = 1) -> DflashBackend:
    return DflashBackend(head, backend, heads.block_of(facts(head.path)), n, ROOM)


def guessed_anew(target: LlamaModel, head: LlamaModel, context: Tokens) -> Logits:
    """A block after one pass over all of the context but its last token."""
    backend = open_backend(target, N_CTX, N_ROWS, 512)
    block = beside(backend, head)
    backend.forward(context[:-1])
    found = block.forward(context).copy()
    block.close()
    backend.close()
    return found


def test_a_block_is_the_one_from_scratch_whatever_was_rejected_before(target: LlamaModel, head: LlamaModel) -> None:
    backend, plain = LlamaBackend(target, N_CTX, N_ROWS, 64), LlamaBackend(target, N_CTX, N_ROWS, 64)
    block = beside(backend, head)
    text = tokens(1, 75)
    text = np.append(text, backend.forward(text)[0].argmax()).astype(np.int32)
    for n_right in (0, 2, 4, 1, 0, 3):
        want = text.copy()
        for _ in range(5):
            want = np.append(want, plain.forward(want)[0].argmax()).astype(np.int32)
        assert block.knows(text)
        np.testing.assert_array_equal(rows := block.forward(text).copy(), guessed_anew(target, head, text))
        np.testing.assert_array_equal(rows, block.forward(text))
        wrong = (want[len(text) + n_right] + 1) % tiny_target.TARGET.vocab
        picks = backend.forward(text, Draft((*want[len(text) :][:n_right].tolist(), int(wrong)))).argmax(axis=1)
        text = np.append(want[: len(text) + n_right], picks[n_right]).astype(np.int32)
        np.testing.assert_array_equal(text, want[: len(text)])
    for each in (block, backend, plain):
        each.close()


def test_each_of_several_conversations_has_its_own_block(target: LlamaModel, head: LlamaModel) -> None:
    backend = SharedBackend(target, N_CTX, N_ROWS, 64, 3)
    backend.set_slots(3)
    block = beside(backend, head, 3)
    texts = [np.append(tokens(9, 20), tokens(seed, 20 + seed)) for seed in range(3)]  # which begin alike
    texts = [np.append(text, backend.forward(text)[0].argmax()).astype(np.int32) for text in texts]
    for n_drafted in (2, 0, 3):
        for text in texts:
            np.testing.assert_array_equal(block.forward(text), guessed_anew(target, head, text))
        asked = [PassInput(text, Draft((3, 4, 5)[:n_drafted])) for text in texts]
        rows = backend.forward_all(asked)
        texts = [np.append(text, row[0].argmax()).astype(np.int32) for text, row in zip(texts, rows, strict=True)]
    block.close()
    backend.close()


def test_a_text_that_is_taken_up_earlier_is_guessed_from_there(target: LlamaModel, head: LlamaModel) -> None:
    backend = LlamaBackend(target, N_CTX, N_ROWS, 64)
    block, text = beside(backend, head), tokens(2, 60)
    backend.forward(text)
    block.forward(np.append(text, 3).astype(np.int32))
    earlier = np.append(text[:40], 7).astype(np.int32)
    np.testing.assert_array_equal(block.forward(earlier), guessed_anew(target, head, earlier))
    assert not block.knows(tokens(3, 40))
    block.close()
    backend.close()


def test_a_target_whose_positions_have_parts_is_drafted_for_alike(tmp_path: Path) -> None:
    """The parts are one and the same number for a text, so a head without them guesses what one with them does."""
    model = LlamaModel(write_family("qwen35", tmp_path))
    shape, context, found = block_head_for(model.path), np.arange(5, 65, dtype=np.int32), list[Logits]()
    for has_parts in (False, True):
        file = write_head(tmp_path / f"{has_parts}.gguf", replace(shape, has_parts=has_parts))
        head = LlamaModel(file, is_head=True)
        found.append(guessed_anew(model, head, context))
        head.close()
    model.close()
    np.testing.assert_allclose(found[0], found[1], atol=1e-5)
    assert np.abs(found[0]).max() > 0.1


def pick(row: Logits, path: Tentative) -> Pick:
    return Pick(int(row.argmax()), 1 / (2 + len(path)), None)


@pytest.mark.parametrize(("max_k", "n_wanted", "n"), [(8, 8, N_GUESSED), (3, 8, 3), (8, 2, 2)])
def test_as_much_of_a_block_is_drafted_as_is_wanted(
    target: LlamaModel, head: LlamaModel, max_k: int, n_wanted: int, n: int
) -> None:
    backend = LlamaBackend(target, N_CTX, N_ROWS, 64)
    block, text, heard = beside(backend, head), tokens(4, 30), list[float]()
    drafter = DflashDrafter(block, backend.n_vocab, ROOM)
    assert drafter.propose(text, Budget(max_k, lambda confidence, token=-1: CONTINUE, pick)).tokens == ()
    backend.forward(text[:-1])

    def should_continue(confidence: float, token: int = -1) -> Answer:
        heard.append(confidence)
        return CONTINUE if len(heard) < n_wanted else LAST

    draft = drafter.propose(text, Budget(max_k, should_continue, pick))
    assert draft.tokens == tuple(block.forward(text).argmax(axis=1)[:n].tolist())
    assert heard == [1 / (2 + i) for i in range(n)]
    block.close()
    backend.close()


@pytest.mark.parametrize(
    "sampling", [Sampling(temperature=0.0), Sampling(temperature=0.8, seed=5)], ids=["greedy", "seeded"]
)
@pytest.mark.parametrize("slots", [1, 3])
def test_a_random_head_never_changes_a_token(target_file: Path, tmp_path: Path, sampling: Sampling, slots: int) -> None:
    file = write_head(tmp_path / "head.gguf", block_head_for(target_file))
    (plain, drafting), n_drafted = replies_with_and_without(Pair("any", target_file, file), "dflash", sampling, slots)
    assert plain == drafting
    assert n_drafted > 0


def test_a_target_that_goes_back_by_snapshots_says_the_same(tmp_path: Path) -> None:
    target, texts, n_drafted = write_family("qwen35", tmp_path), list[tuple[int, ...]](), 0
    file = write_head(tmp_path / "head.gguf", replace(block_head_for(target), has_parts=True))
    for drafters in ((), ("dflash",)):
        engine = LoadedEngine(Pair("any", target, file), Options(512, drafters, fixed_k=3, threads=1, fast=True))
        chunks = list(engine.reply(Ids(PROMPT), Sampling(temperature=0.0), 40))
        texts.append(tuple(token for chunk in chunks for token in chunk.tokens))
        n_drafted = chunks[-1].stats.draft_n if chunks[-1].stats else 0
        engine.close()
    assert texts[0] == texts[1]
    assert n_drafted > 0


@pytest.mark.parametrize(
    ("change", "clause"),
    [
        ({"width": 128}, "it reads states of 128 values, and the target's have 64"),
        ({"vocab": 1000}, "it is for 1,000 tokens, and the target has 512"),
        ({"layers": ()}, "it names no layers of its target"),
        ({"layers": (0, 4)}, "it reads layer 4 of a target that has 4"),
        ({"block": 1}, "it does not state how many tokens it drafts at once"),
        ({"mask": None}, "it does not state which token marks a token to be drafted"),
        (
            {"extra": "selector_hidden.weight"},
            "it is a DFlash 2 head, a variant of DFlash that Slipstream does not run",
        ),
        ({"words": 64, "unknown": 1000}, "it drafts tokens that its target does not have"),
        ({"block": 0, "depth": 2}, "it has 2 layers, and an EAGLE-3 head has one"),
    ],
    ids=str,
)
def test_a_head_that_cannot_draft_is_refused_and_the_target_answers(
    target_file: Path, tmp_path: Path, change: dict[str, object], clause: str
) -> None:
    file = write_head(tmp_path / "head.gguf", replace(block_head_for(target_file), **change))  # type: ignore[arg-type]
    assert without(Pair("any", target_file, file)).endswith(f"head.gguf is not a head for target.gguf: {clause}")


def without(pair: Pair, options: Options | None = None) -> str:
    """Why a pair's head was left out; it answers all the same."""
    engine = LoadedEngine(pair, options or Options(512, threads=1))
    chunks = list(engine.reply(Ids(PROMPT), Sampling(), 4))
    left_out = engine.facts.left_out
    engine.close()
    assert sum(len(chunk.tokens) for chunk in chunks) == 4
    return left_out


def test_a_head_of_another_kind_than_was_asked_for_is_told(target_file: Path, tmp_path: Path) -> None:
    file = write_head(tmp_path / "head.gguf", head_for(target_file))
    found = without(Pair("any", target_file, file), Options(512, ("dflash",), threads=1))
    assert found == "head.gguf is not a DFlash head"


@pytest.mark.parametrize("share", [0.001, 0.05, 0.5, 0.999])
@pytest.mark.parametrize("make", [head_for, block_head_for])
def test_a_head_that_was_cut_short_is_left_out(
    target_file: Path, tmp_path: Path, make: Callable[[Path], HeadShape], share: float
) -> None:
    whole = write_head(tmp_path / "whole.gguf", make(target_file)).read_bytes()
    file = tmp_path / "cut.gguf"
    file.write_bytes(whole[: int(share * len(whole))])
    found = without(Pair("any", target_file, file))
    assert found.startswith("the draft head was left out: cut.gguf is ")
    assert "damaged" in found or "incomplete" in found


@pytest.mark.parametrize("make", [head_for, block_head_for])
def test_memory_for_the_target_alone_leaves_the_head_out(
    target_file: Path, tmp_path: Path, make: Callable[[Path], HeadShape]
) -> None:
    spec = spec_of(target_file, write_head(tmp_path / "head.gguf", make(target_file)), ContextSpec(512), FLOOR)
    assert spec is not None
    both, alone = spec.needs(512, True), spec.needs(512, False)
    assert fit(spec, Headroom(both, 0, 0), "target.gguf").with_draft
    plan = fit(spec, Headroom(both - 1, 0, 0), "target.gguf")
    assert (plan.with_draft, plan.n_bytes) == (False, alone)
    assert plan.text.startswith("left out the head: all of it needs ")


def test_a_gemma_assistant_is_refused_by_name(target_file: Path, tmp_path: Path) -> None:
    writer = GGUFWriter(str(tmp_path / "assistant.gguf"), "gemma4-assistant")
    writer.add_block_count(1)
    writer.add_embedding_length(64)
    writer.add_tensor("output_norm.weight", np.ones(64, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = tmp_path / "assistant.gguf"
    assert heads.wanted_by(facts(file)) == f"not used: {heads.UNUSED}"
    assert without(Pair("any", target_file, file)).endswith(f"not a head for target.gguf: {heads.UNUSED}")


def test_what_a_block_head_is_for_is_said(target_file: Path, tmp_path: Path) -> None:
    said = heads.wanted_by(facts(write_head(tmp_path / "head.gguf", block_head_for(target_file))))
    assert said == "a head (dflash) for targets of 512 tokens and width 64; reads layers 1, 2, 3, 6 tokens at once"
