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
from runtime.training import run  # noqa: E402
from runtime.training.collecting import Stage, teacher_of  # noqa: E402
from runtime.training.conditions import TrainingError  # noqa: E402
from runtime.training.head_file import HeadFile, read_head, write_head  # noqa: E402
from runtime.training.layers import (  # noqa: E402
    Head,
    LayerShape,
    unrolled,
)
from runtime.training.learners import HeadLearner  # noqa: E402
from runtime.training.run import measured, train_further  # noqa: E402
from runtime.training.samples import Sample, Samples  # noqa: E402
from runtime.training.target_words import TargetWords  # noqa: E402
from runtime.training.trainer import Schedule, Trainer  # noqa: E402

pytestmark = pytest.mark.slow

TARGET = Path(__file__).parents[2] / "demo" / "target.gguf"
READ = 4, 8, 11
SHAPE = LayerShape(width=384, heads=6, kv_heads=3, ffn=256)
TEXTS = [Sample(np.random.default_rng(i).integers(300, 900, 40 + i).astype(np.int32), 8) for i in range(6)]


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Samples:
    found = Samples(tmp_path_factory.mktemp("samples"), 4096, 3 * SHAPE.width)
    with teacher_of(TARGET, READ) as teacher:
        for number, text in enumerate(TEXTS):
            found.write(str(number), teacher.read(text))
    return found


def fresh(words: TargetWords, n_kept: int = 0) -> HeadFile:
    """A head that has learned nothing."""
    torch.manual_seed(0)
    file = HeadFile(Head(SHAPE), READ, words.n_vocab, 256, "a head")
    return replace(file, output=words.output(np.arange(0, 2 * n_kept, 2))) if n_kept else file


def trainer(samples: Samples, epochs: int = 6, checkpoint: Path | None = None) -> Trainer:
    words = TargetWords(TARGET)
    learner = HeadLearner(fresh(words, 1024), words, torch.device("cpu"))
    return Trainer(learner, samples, Schedule(epochs), 1, checkpoint)


def file_of(trained: Trainer) -> HeadFile:
    """The head's file as it is now."""
    assert isinstance(trained.learner, HeadLearner)
    return replace(fresh(TargetWords(TARGET), 1024), head=trained.learner.module)


def weights(trained: Trainer) -> list[bytes]:
    return [weight.detach().numpy().tobytes() for weight in trained.learner.module.parameters()]


def test_what_the_target_says_does_not_depend_on_what_it_read_before(samples: Samples) -> None:
    with teacher_of(TARGET, READ) as teacher:
        alone = teacher.read(TEXTS[3])
    kept = samples.read("3")
    assert kept.states is not None
    assert alone.states is not None
    assert kept.states.tobytes() == alone.states.tobytes()
    assert kept.ids.tobytes() == alone.ids.tobytes()
    assert kept.chances.tobytes() == alone.chances.tobytes()


def test_chances_are_of_the_token_at_their_place(samples: Samples) -> None:
    model = LlamaModel(TARGET)
    backend = LlamaBackend(model, 128, 4)
    kept = samples.read("0")
    row = backend.forward(TEXTS[0].tokens[:20])[0]
    assert kept.ids[20 - kept.start, 0] == row.argmax()
    backend.close()
    model.close()


def test_a_head_with_fewer_words_says_in_llama_cpp_what_it_says_in_pytorch(tmp_path: Path, samples: Samples) -> None:
    words = TargetWords(TARGET)
    file = fresh(words, 1024)
    write_head(tmp_path / "head.gguf", file)
    learner = HeadLearner(file, words, torch.device("cpu"))
    sample = samples.read("0")
    with torch.no_grad():
        ids = torch.from_numpy(sample.tokens.astype(np.int64))[None]
        assert sample.states is not None
        states = torch.from_numpy(sample.states)[None]
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


def test_a_training_that_was_interrupted_goes_on_with_its_weights(tmp_path: Path, samples: Samples) -> None:
    broken = trainer(samples, checkpoint=tmp_path / "checkpoint")
    list(broken.run(lambda: broken.step == 3))
    assert not broken.is_done
    resumed = trainer(samples, checkpoint=tmp_path / "checkpoint")
    assert (resumed.step, weights(resumed)) == (3, weights(broken))
    assert [stage.done for stage in resumed.run()] == [4, 5, 6]
    assert resumed.is_done
    assert trainer(samples, checkpoint=tmp_path / "checkpoint").is_done


@pytest.fixture(scope="module")
def learned(samples: Samples) -> tuple[Trainer, list[Stage]]:
    """A training that is done, and its progress."""
    done = trainer(samples, 30)
    return done, list(done.run())


def test_a_head_learns(learned: tuple[Trainer, list[Stage]]) -> None:
    assert learned[1][-1].loss < 0.9 * learned[1][0].loss


def test_a_head_read_back_is_the_head_that_was_written(tmp_path: Path) -> None:
    write_head(tmp_path / "one.gguf", fresh(TargetWords(TARGET), 1024))
    write_head(tmp_path / "two.gguf", read_head(tmp_path / "one.gguf"))
    assert (tmp_path / "one.gguf").read_bytes() == (tmp_path / "two.gguf").read_bytes()


def test_a_head_is_trained_further_alike_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "STEPS", 3)
    write_head(tmp_path / "head.gguf", fresh(TargetWords(TARGET), 1024))
    found = []
    for name in "ab":
        (tmp_path / name).mkdir()
        new = tmp_path / name / "new.gguf"
        found.append((train_further(TARGET, tmp_path / "head.gguf", TEXTS[:4], TEXTS[4:], new, 0), new.read_bytes()))
    assert found[0] == found[1]
    assert found[0][1] != (tmp_path / "head.gguf").read_bytes()


def test_texts_without_a_reply_teach_nothing(tmp_path: Path) -> None:
    write_head(tmp_path / "head.gguf", fresh(TargetWords(TARGET)))
    short = [Sample(TEXTS[0].tokens[:10], 8)]
    with pytest.raises(TrainingError, match="Too few drafts were rejected"):
        train_further(TARGET, tmp_path / "head.gguf", TEXTS, short, tmp_path / "new.gguf", 0)
    assert not (tmp_path / "new.gguf").exists()


def test_a_head_is_measured_as_llama_cpp_drafts_with_it(
    tmp_path: Path, samples: Samples, learned: tuple[Trainer, list[Stage]]
) -> None:
    found = learned[0].held_out(samples)
    n_right = n_tried = 0
    write_head(tmp_path / "head.gguf", file_of(learned[0]))
    model, small = LlamaModel(TARGET), LlamaModel(tmp_path / "head.gguf", is_head=True)
    backend = LlamaBackend(model, 256, 4)
    eagle = EagleBackend(small, backend, READ, 1, 4)
    for sample in map(samples.read, samples.names()):
        assert sample.ids is not None
        for at in range(max(2, sample.start), len(sample.tokens)):
            backend.forward(sample.tokens[: at - 1])
            n_right += int(eagle.forward(sample.tokens[:at])[0].argmax()) == sample.ids[at - sample.start, 0]
            n_tried += 1
    for each in (eagle, backend, small, model):
        each.close()
    assert n_tried * 0.8 < len(found[0]) <= n_tried
    assert found[0].mean() > 0.2
    assert found[0].mean() == pytest.approx(n_right / n_tried, abs=0.05)


def test_a_head_is_no_better_than_itself(samples: Samples) -> None:
    found = trainer(samples).held_out(samples)
    assert len(found) == 3
    same = measured(found, found)
    assert (same.before, same.error, same.n_positions) == (same.after, 0.0, sum(map(len, found)))
    assert not same.is_better
