"""What is trained on this machine: needs the extra `train`, but for what is refused without it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra `train` is not installed")

from runtime.backends.heads.llama_heads import EagleBackend  # noqa: E402
from runtime.backends.llama import LlamaBackend  # noqa: E402
from runtime.backends.model import LlamaModel  # noqa: E402
from runtime.training.head_file import HeadFile, read_head, write_head  # noqa: E402
from runtime.training.head_model import Head, unrolled  # noqa: E402
from runtime.training.layers import LayerShape  # noqa: E402
from runtime.training.learners import HeadLearner, states_of  # noqa: E402
from runtime.training.refining import refine  # noqa: E402
from runtime.training.samples import Samples, Text  # noqa: E402
from runtime.training.target_words import TargetWords  # noqa: E402
from runtime.training.teacher import Teacher  # noqa: E402
from runtime.training.trainer import Schedule, Trainer  # noqa: E402

pytestmark = pytest.mark.slow

TARGET = Path(__file__).parent.parent / "demo" / "target.gguf"
READ = 4, 8, 11
SHAPE = LayerShape(width=384, heads=6, kv_heads=3, ffn=256)
TEXTS = [Text(np.random.default_rng(i).integers(300, 900, 40 + i).astype(np.int32), 8) for i in range(6)]


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Samples:
    found = Samples(tmp_path_factory.mktemp("samples"), 4096, 3 * SHAPE.width)
    with Teacher(TARGET, READ) as teacher:
        for number, text in enumerate(TEXTS):
            found.write(number, teacher.read(text))
    return found


def fresh(words: TargetWords, n_kept: int = 0) -> HeadFile:
    """A head that has learned nothing."""
    torch.manual_seed(0)
    file = HeadFile(Head(SHAPE), READ, words.n_vocab, 256, "a head")
    return replace(file, output=words.output(np.arange(0, 2 * n_kept, 2))) if n_kept else file


def trainer(samples: Samples, n_steps: int = 6) -> Trainer:
    words = TargetWords(TARGET)
    learner = HeadLearner(fresh(words, 1024), words, torch.device("cpu"))
    return Trainer(learner, samples, samples.numbers(), Schedule(n_steps=n_steps), seed=1)


def weights(trained: Trainer) -> list[bytes]:
    return [weight.detach().numpy().tobytes() for weight in trained.learner.module.parameters()]


def test_what_the_target_says_does_not_depend_on_what_it_read_before(samples: Samples) -> None:
    with Teacher(TARGET, READ) as teacher:
        alone = teacher.read(TEXTS[3])
    kept = samples.read(3)
    assert kept.states is not None
    assert alone.states is not None
    assert kept.states.tobytes() == alone.states.tobytes()
    assert kept.ids.tobytes() == alone.ids.tobytes()
    assert kept.chances.tobytes() == alone.chances.tobytes()


def test_chances_are_of_the_token_at_their_place(samples: Samples) -> None:
    model = LlamaModel(TARGET)
    backend = LlamaBackend(model, 128, 4)
    kept = samples.read(0)
    row = backend.forward(TEXTS[0].tokens[:20])[0]
    assert kept.ids[20 - kept.start, 0] == row.argmax()
    backend.close()
    model.close()


def test_a_head_with_fewer_words_says_in_llama_cpp_what_it_says_in_pytorch(tmp_path: Path, samples: Samples) -> None:
    words = TargetWords(TARGET)
    file = fresh(words, 1024)
    write_head(tmp_path / "head.gguf", file)
    learner = HeadLearner(file, words, torch.device("cpu"))
    sample = samples.read(0)
    with torch.no_grad():
        ids = torch.from_numpy(sample.tokens.astype(np.int64))[None]
        states = states_of([sample], ids.shape[1], learner.module.fc.in_features, learner.device)
        steps = [each[0, -1] @ learner.outputs.T for each in unrolled(learner.module, words.vectors, ids, states, 3)]
    model, small = LlamaModel(TARGET), LlamaModel(tmp_path / "head.gguf", is_head=True)
    backend = LlamaBackend(model, 256, 4)
    eagle = EagleBackend(small, backend, READ, 1, 4)
    n = len(sample.tokens) - 4
    backend.forward(sample.tokens[:n])
    for step, wanted in enumerate(steps):
        found = eagle.forward(sample.tokens[: n + 1 + step])[0]
        assert np.isneginf(found[1])  # a word that the head lacks
        assert np.corrcoef(found[learner.kept.numpy()], wanted.numpy())[0, 1] > 0.995
    for each in (eagle, backend, small, model):
        each.close()


def test_a_training_that_was_interrupted_gives_the_same_head(tmp_path: Path, samples: Samples) -> None:
    whole = trainer(samples)
    list(whole.run(lambda: False))
    broken = trainer(samples)
    list(broken.run(lambda: broken.step == 3, tmp_path / "checkpoint"))
    assert not broken.is_done
    resumed = trainer(samples)
    list(resumed.run(lambda: False, tmp_path / "checkpoint"))
    assert weights(resumed) == weights(whole)


def test_a_head_learns(samples: Samples) -> None:
    learning = trainer(samples, 30)
    told = list(learning.run(lambda: False))
    assert told[-1].loss < 0.9 * told[0].loss


def test_a_head_read_back_is_the_head_that_was_written(tmp_path: Path) -> None:
    write_head(tmp_path / "one.gguf", fresh(TargetWords(TARGET), 1024))
    write_head(tmp_path / "two.gguf", read_head(tmp_path / "one.gguf"))
    assert (tmp_path / "one.gguf").read_bytes() == (tmp_path / "two.gguf").read_bytes()


def test_a_head_is_trained_further_alike_each_time(tmp_path: Path) -> None:
    write_head(tmp_path / "head.gguf", fresh(TargetWords(TARGET), 1024))
    for name in "ab":
        refined = refine(
            TARGET, tmp_path / "head.gguf", TEXTS, tmp_path / f"{name}.gguf", Schedule(n_steps=3, rate=3e-4)
        )
        assert refined is not None
        assert refined.n_steps == 3
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()
    assert (tmp_path / "a.gguf").read_bytes() != (tmp_path / "head.gguf").read_bytes()


def test_one_that_is_cancelled_at_once_writes_nothing(tmp_path: Path) -> None:
    write_head(tmp_path / "head.gguf", fresh(TargetWords(TARGET)))
    made = refine(TARGET, tmp_path / "head.gguf", TEXTS, tmp_path / "a.gguf", Schedule(), is_cancelled=lambda: True)
    assert made is None
    assert not (tmp_path / "a.gguf").exists()
