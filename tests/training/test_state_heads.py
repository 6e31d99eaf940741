"""Trained Medusa and Hydra heads: the module of PyTorch and the drafter in numpy compute the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.instruments.shapes import TINY
from runtime.backends.heads.state_head import open_state_head
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.training.job import OWN_KINDS
from runtime.training.own_head_file import OwnHeadFile, write_own_head
from runtime.training.samples import Sample

torch = pytest.importorskip("torch", reason="the extra `train` is not installed")

from runtime.training.collecting import teacher_of  # noqa: E402
from runtime.training.learners import N_STEPS  # noqa: E402
from runtime.training.state_heads import StateHeadLearner, begin_heads  # noqa: E402
from runtime.training.target_words import TargetWords, floats  # noqa: E402
from tests.support import tiny_target  # noqa: E402

target_file = tiny_target.target_file

KINDS = pytest.mark.parametrize("kind", OWN_KINDS)
TEXT = Sample(np.random.default_rng(3).integers(0, TINY.vocab, 60).astype(np.int32), 20)


@pytest.fixture(scope="module")
def sample(target_file: Path) -> Sample:
    with teacher_of(target_file, (), shows_outputs=True) as teacher:
        return teacher.read(TEXT)


def test_the_states_of_a_text_are_those_from_which_its_tokens_follow(target_file: Path, sample: Sample) -> None:
    assert sample.states is not None
    output = TargetWords(target_file).output(np.arange(TINY.vocab))
    rows = floats(output.rows, output.kind)
    likeliest = (sample.states[TEXT.start - 1 : -1].astype(np.float32) @ rows.T).argmax(axis=1)
    assert (likeliest == sample.ids[:, 0]).mean() > 0.9  # the library multiplies in integers
    assert not sample.states[: TEXT.start - 1].any()


@KINDS
def test_what_is_trained_is_what_drafts(kind: str, target_file: Path, sample: Sample, tmp_path: Path) -> None:
    torch.manual_seed(0)
    words, kept = TargetWords(target_file), np.arange(0, TINY.vocab, 4)
    heads = begin_heads(kind, words, kept)
    file, facts = tmp_path / "head.gguf", ModelFacts(read_model_header(target_file))
    write_own_head(file, OwnHeadFile(kind, heads.shape, facts.n_vocab, "a target", heads.weights(), kept))
    model = LlamaModel(target_file)
    backend = LlamaBackend(model, 256, 9)
    head = open_state_head(file, ModelFacts(read_model_header(file)), backend, 1, 8)
    assert sample.states is not None
    state = sample.states[30].astype(np.float32)
    head.feed(TEXT.tokens[:31], 30, state[None])
    ids = torch.from_numpy(TEXT.tokens[None, 31:40].astype(np.int64))
    for i in range(N_STEPS):
        feature = heads(i, torch.from_numpy(state)[None, None], words.vectors(ids)[:, : 1 + i])
        want = (feature @ heads.outputs.T)[0, 0].detach().numpy()
        found = head.forward(TEXT.tokens[: 32 + i])[0]
        np.testing.assert_allclose(found[kept], want, atol=0.1 * np.abs(want).max())  # the file's are quantized
    for each in (head, backend, model):
        each.close()


@KINDS
def test_a_head_learns_a_text_by_heart(kind: str, target_file: Path, sample: Sample) -> None:
    torch.manual_seed(0)
    learner = StateHeadLearner(
        begin_heads(kind, TargetWords(target_file), np.arange(TINY.vocab)),
        TargetWords(target_file),
        np.arange(TINY.vocab),
        torch.device("cpu"),
    )
    optimizer = torch.optim.Adam(learner.module.parameters(), 1e-2)
    for _ in range(400):
        optimizer.zero_grad()
        sum(lesson.loss for lesson in learner.lessons([sample])).backward()
        optimizer.step()
    right = [lesson.right.float().mean().item() for lesson in learner.lessons([sample])]
    assert min(right) > 0.85  # 0.89 on a processor with AMX
