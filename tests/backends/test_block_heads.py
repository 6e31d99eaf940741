"""DFlash heads: a block of guesses from one pass, which never changes a token, and heads that are refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.instruments.architectures.writer import write_family
from bench.instruments.heads import PROMPT, block_head_for, write_head
from runtime.backends.contexts import open_backend
from runtime.backends.heads.llama_heads import DflashBackend
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.backends.shared import SharedBackend
from runtime.core.draft import Draft, Logits, PassInput, Tokens
from runtime.core.draft import Path as Tentative
from runtime.core.drafter import CONTINUE, LAST, Answer, Budget, Pick
from runtime.drafters.head import DflashDrafter
from runtime.engine import Ids, Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.models import block_heads
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
    return DflashBackend(head, backend, block_heads.block_of(facts(head.path)), n, ROOM)


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
