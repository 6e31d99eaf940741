"""DSpark heads: DFlash blocks whose rows also depend on the token before, as the library computes them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader

from bench.instruments.heads import HeadShape, block_head_for, write_head
from bench.instruments.shapes import TINY
from runtime.backends.heads.llama_heads import DflashBackend
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.core.draft import Logits, Tokens
from runtime.core.draft import Path as Tentative
from runtime.core.drafter import CONTINUE, Budget, Pick
from runtime.drafters.head import DsparkDrafter
from runtime.models.block_heads import block_of
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from tests.support import tiny_target

target_file, target = tiny_target.target_file, tiny_target.target

N_CTX, ROOM, BLOCK = 256, 8, 6
CONTEXT: Tokens = (np.arange(40, dtype=np.int32) * 7) % TINY.vocab
SHAPES = pytest.mark.parametrize(
    "change",
    [{}, {"words": 64}, {"from_known": False}],
    ids=["the target's words", "few words", "without the known token's row"],
)


def shape_of(target_file: Path, change: dict[str, object]) -> HeadShape:
    return replace(block_head_for(target_file, rank=8), **change)  # type: ignore[arg-type]


def facts(path: Path) -> ModelFacts:
    return ModelFacts(read_model_header(path))


def rows(target: LlamaModel, file: Path) -> Logits:
    """All rows of a block after CONTEXT."""
    backend, head = LlamaBackend(target, N_CTX, 9), LlamaModel(file, is_head=True)
    block = DflashBackend(head, backend, block_of(facts(file)), 1, ROOM)
    backend.forward(CONTEXT[:-1])
    n = len(block.forward(CONTEXT))
    found = block._logits().copy()
    assert n == len(found) - block_of(facts(file)).n_blank
    for each in (block, head, backend):
        each.close()
    return found


def with_zeros(file: Path, name: str) -> Path:
    """The same file with one tensor of nothing but zeros."""
    data, (tensor,) = bytearray(file.read_bytes()), [each for each in GGUFReader(file).tensors if each.name == name]
    data[tensor.data_offset : tensor.data_offset + tensor.n_bytes] = bytes(tensor.n_bytes)
    path = file.with_name("zeros.gguf")
    path.write_bytes(data)
    return path


@SHAPES
def test_each_row_adds_what_follows_the_likeliest_token_of_the_row_before(
    change: dict[str, object], target: LlamaModel, target_file: Path, tmp_path: Path
) -> None:
    file = write_head(tmp_path / "head.gguf", shape_of(target_file, change))
    found, plain = rows(target, file), rows(target, with_zeros(file, "markov_w2.weight"))
    tensors = {tensor.name: tensor.data for tensor in GGUFReader(file).tensors}
    drafted = tensors.get("d2t", np.arange(TINY.vocab))
    first, before = block_of(facts(file)).n_blank, int(CONTEXT[-1])
    np.testing.assert_array_equal(found[:first], plain[:first])
    for i in range(first, BLOCK):
        bias = tensors["markov_w2.weight"] @ tensors["markov_w1.weight"][before]
        np.testing.assert_allclose(found[i, drafted], plain[i, drafted] + bias, atol=1e-5)
        assert np.isneginf(np.delete(found[i], drafted)).all()
        before = int(found[i].argmax())
    assert np.abs(found[first:, drafted] - plain[first:, drafted]).max() > 0.1


def pick(row: Logits, path: Tentative) -> Pick:
    return Pick(int(row.argmax()), 1.0, None)


@SHAPES
def test_the_whole_block_is_drafted(
    change: dict[str, object], target: LlamaModel, target_file: Path, tmp_path: Path
) -> None:
    file = write_head(tmp_path / "head.gguf", shape_of(target_file, change))
    backend, head = LlamaBackend(target, N_CTX, 9), LlamaModel(file, is_head=True)
    block = DflashBackend(head, backend, block_of(facts(file)), 1, ROOM)
    backend.forward(CONTEXT[:-1])
    draft = DsparkDrafter(block, backend.n_vocab, ROOM).propose(CONTEXT, Budget(8, lambda c, t=-1: CONTINUE, pick))
    n_blank = 0 if change.get("from_known", True) else 1
    assert draft.tokens == tuple(rows(target, file)[n_blank:].argmax(axis=1).tolist())
    assert len(draft.tokens) == BLOCK - n_blank
    for each in (block, head, backend):
        each.close()
