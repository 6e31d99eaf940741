"""Parts of `models distill` that need no PyTorch: what is kept on disk, the leave to learn from chats, the verdict."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from app.models import distill
from app.models.distill import noted
from runtime.engine.paired import FEW, Trial, trial_of
from runtime.speculative.control.explain import Pass
from runtime.training.collecting import Stage
from runtime.training.conditions import TrainingError
from runtime.training.samples import N_LIKELY, Sample, Samples
from tests.support.cli import SLIPSTREAM, failing
from tests.support.distilling import asked

N_VOCAB, N_VALUES = 4096, 12

# Samples and texts


def sample(n: int = 40, start: int = 8) -> Sample:
    rng = np.random.default_rng(n)
    ids = rng.integers(0, N_VOCAB, (n - start, N_LIKELY)).astype(np.int32)
    chances = -rng.random((n - start, N_LIKELY)).astype(np.float16)
    states = rng.standard_normal((n, N_VALUES)).astype(np.float16)
    return Sample(rng.integers(0, N_VOCAB, n).astype(np.int32), start, ids, chances, states)


@pytest.fixture
def samples(tmp_path: Path) -> Samples:
    found = Samples(tmp_path, N_VOCAB, N_VALUES)
    found.write("3", sample())
    return found


def test_a_sample_comes_back_as_it_was(samples: Samples) -> None:
    assert samples.names() == ["3"]
    for one, other in zip(samples.read("3"), sample(), strict=True):
        assert np.array_equal(one, other)  # type: ignore[arg-type]


def test_a_text_and_a_sample_without_states_are_as_they_were(tmp_path: Path) -> None:
    found, whole = Samples(tmp_path, N_VOCAB), sample()
    found.write("text", Sample(whole.tokens, whole.start))
    found.write("sample", whole._replace(states=None))
    assert found.read("text").ids is None
    assert np.array_equal(found.read("text").tokens, whole.tokens)
    assert found.read("sample").states is None


class Hostile:
    """What would make a folder if it were unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.path),)


def damages(data: bytes, folder: Path) -> Iterator[bytes]:
    """What may stand in the file of a sample in place of its content."""
    yield from (b"", data[:7], data[: len(data) // 2], data[:-1], os.urandom(len(data)))
    for at in range(1000, 7000, 850):
        yield data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]
    yield pickle.dumps(Hostile(folder / "ran"))
    whole = sample()._asdict()
    for name, value in {
        "tokens": np.full(40, N_VOCAB, dtype=np.int32),
        "start": 41,
        "ids": np.full((32, N_LIKELY), -1, dtype=np.int32),
        "chances": np.zeros((32, 1), dtype=np.float16),
        "states": np.zeros((39, N_VALUES), dtype=np.float16),
        "more": 1,
    }.items():
        np.savez(made := BytesIO(), **whole | {name: value})  # type: ignore[arg-type]
        yield made.getvalue()
    np.savez(made := BytesIO(), tokens=np.array([Hostile(folder / "ran")] * 40), start=8)
    yield made.getvalue()
    np.savez(made := BytesIO(), start=8)
    yield made.getvalue()


def test_a_damaged_sample_is_removed_with_a_sentence_and_runs_nothing(samples: Samples, tmp_path: Path) -> None:
    sound = samples.path("3").read_bytes()
    for data in damages(sound, tmp_path):
        samples.path("3").write_bytes(data)
        with pytest.raises(TrainingError, match=r"3\.npz .* was damaged and is removed\. Run the same command"):
            samples.read("3")
        assert samples.names() == []
    assert not (tmp_path / "ran").exists()


def test_a_pipe_of_a_samples_name_is_not_waited_for(samples: Samples) -> None:
    if not hasattr(os, "mkfifo"):
        pytest.skip("there are no pipes with names here")
    samples.path("3").unlink()
    os.mkfifo(samples.path("3"))
    with pytest.raises(TrainingError, match="damaged"):
        samples.read("3")


# What was measured


def drafted(n_drafted: int, n_accepted: int) -> Pass:
    return Pass(0.01, "eagle", n_drafted, n_accepted, n_accepted + 1, 0.002 * n_drafted)


def test_a_guess_behind_a_wrong_one_says_nothing_about_the_chance_of_a_guess() -> None:
    found = trial_of([1.1, 0.9, 1.0], [10.0], [drafted(3, 1), drafted(2, 2)], 12)
    assert (found.gain, found.acceptance, found.n_tried, found.right) == (1.0, 3 / 5, 4, 3 / 4)
    assert found.guess_seconds == pytest.approx(0.002)
    assert found.per_pass == 12 / 9


def test_no_reply_and_no_guess_are_a_trial_too() -> None:
    assert trial_of([], [], [], 0) == Trial(0.0, 0.0, 0.0)


# Leave to learn from chats


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A profile of its own, in which modules have the names that training needs and nothing in them."""
    for kind in ("CACHE", "DATA", "CONFIG"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind))
    for name in ("torch", "gguf"):
        (tmp_path / f"{name}.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


def answered(answer: str) -> tuple[int, str]:
    """The exit code and what a terminal shows of the command when that is typed."""
    import pty
    import subprocess
    import time

    from tests.cli.test_streams import read_terminal

    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*SLIPSTREAM, "models", "distill", "demo", "--from", "chats"],
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    os.write(ours, answer.encode())
    shown = read_terminal(ours, time.monotonic() + 60).decode()
    os.close(ours)
    return process.wait(60), " ".join(shown.split())


@pytest.mark.skipif(sys.platform == "win32", reason="has no pseudo-terminals")
@pytest.mark.parametrize(
    ("answer", "said"),
    [("y\n", "There are no chats to learn from yet."), ("n\n", "as you answered. Leave out `--from`")],
)
def test_leave_to_learn_from_chats_is_asked_for_once(profile: Path, answer: str, said: str) -> None:
    code, shown = answered(answer)
    assert code == 1
    assert "Let drafts learn from the questions in your chats?" in shown
    assert said in shown
    again = failing("models", "distill", "demo", "--from", "chats")  # without a terminal, so it cannot ask
    assert said in again


def test_without_a_terminal_nobody_is_asked_and_nothing_is_remembered(profile: Path) -> None:
    said = failing("models", "distill", "demo", "--from", "chats")
    assert "can only be asked on a terminal" in said
    assert distill.answer() == ""


def test_a_question_that_is_not_answered_is_asked_again(profile: Path) -> None:
    if sys.platform == "win32":
        pytest.skip("has no pseudo-terminals")
    assert answered("\x04")[0] == 1
    assert distill.answer() == ""


def test_an_answer_that_nobody_gave_is_none(profile: Path) -> None:
    asked()
    distill.answer_file().write_bytes(b"\xff\xfe maybe")
    assert distill.answer() == ""


def test_what_gains_without_right_guesses_or_with_too_few_is_not_kept() -> None:
    assert not Trial(1.2, 0.0, 10.0, FEW, per_pass=1.01).pays
    assert not Trial(1.3, 0.5, 10.0, FEW - 1, per_pass=1.2).pays
    assert Trial(1.2, 0.5, 10.0, FEW, per_pass=1.2).pays


def test_progress_says_loss_acceptance_time_left_and_expected_gain() -> None:
    passes = [0.010, 0.012, 0.014]
    said = noted(Stage("training", 3, 9, 1.234, (0.8, 0.8), 600), None, passes, 0.001)
    assert said == "loss 1.23, 80% of first tokens right, 10 min left, 1.53 times as fast expected"
    assert noted(Stage("reading them", 1200, 5000), 42.0, passes, 0.001) == "1,200 of 5,000, 42 s left"
