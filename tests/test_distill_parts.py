"""Parts of `models distill` that need no PyTorch: what is kept on disk, the leave to learn from chats, the verdict."""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from app.models import distill
from app.models.distill import noted
from runtime.speculative.control.explain import Pass
from runtime.tools.paired import FEW, Trial, trial_of
from runtime.training.collecting import Stage
from runtime.training.extra import TrainingError
from runtime.training.judging import Judgement
from runtime.training.samples import N_LIKELY, Sample, Samples, Text, Texts
from runtime.training.verdict import break_even
from tests.support.cli import SLIPSTREAM, failing
from tests.support.distilling import asked

N_VOCAB, N_VALUES = 4096, 12
PASSES = [3e-3, 5e-3, 7e-3, 9e-3]

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
    found.write(3, sample())
    return found


def test_a_sample_comes_back_as_it_was(samples: Samples) -> None:
    found, wanted = samples.read(3), sample()
    assert (samples.numbers(), found.start) == ([3], wanted.start)
    assert found.states is not None
    assert wanted.states is not None
    for one, other in (
        (found.tokens, wanted.tokens),
        (found.ids, wanted.ids),
        (found.chances, wanted.chances),
        (found.states, wanted.states),
    ):
        assert np.array_equal(one, other)


def test_a_sample_without_states_is_one_without_them(tmp_path: Path) -> None:
    found = Samples(tmp_path, N_VOCAB, 0)
    whole = sample()
    found.write(0, Sample(whole.tokens, whole.start, whole.ids, whole.chances, None))
    assert found.read(0).states is None


def cut(data: bytes, n: int) -> bytes:
    return data[:n]


def changed(data: bytes, at: int, value: int) -> bytes:
    return data[:at] + struct.pack("<i", value) + data[at + 4 :]


WHOLE = 4 * 42 + 32 * N_LIKELY * 6 + 40 * 2 * N_VALUES
HOSTILE = {
    "empty": lambda data: b"",
    "seven bytes": lambda data: cut(data, 7),
    "cut off in its middle": lambda data: cut(data, WHOLE // 2),
    "a byte short": lambda data: cut(data, WHOLE - 1),
    "a byte long": lambda data: data + b"\0",
    "longer than texts are": lambda data: changed(data, 0, 2**30),
    "of negative length": lambda data: changed(data, 0, -40),
    "begun behind its end": lambda data: changed(data, 4, 41),
    "begun before its beginning": lambda data: changed(data, 4, -8),
    "with a word that the target lacks": lambda data: changed(data, 8, N_VOCAB),
    "with a negative word": lambda data: changed(data, 4 * 60, -1),
    "with a chance above 1": lambda data: changed(data, 4 * 42 + 32 * N_LIKELY * 4, 0x3C003C00),
    "a zip archive": lambda data: b"PK\x03\x04" + data[4:],
    "noise": lambda data: os.urandom(WHOLE),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_damaged_sample_is_removed_with_a_sentence(samples: Samples, what: str) -> None:
    path = samples.path(3)
    assert path.stat().st_size == WHOLE
    path.write_bytes(HOSTILE[what](path.read_bytes()))
    with pytest.raises(TrainingError, match=r"000003\.sample .* was damaged and is removed\. Run the same command"):
        samples.read(3)
    assert samples.numbers() == []


def test_a_pipe_of_a_samples_name_is_not_waited_for(samples: Samples) -> None:
    if not hasattr(os, "mkfifo"):
        pytest.skip("there are no pipes with names here")
    samples.path(3).unlink()
    os.mkfifo(samples.path(3))
    with pytest.raises(TrainingError, match="damaged"):
        samples.read(3)


def test_a_text_comes_back_as_it_was_and_a_damaged_one_is_none(tmp_path: Path) -> None:
    texts = Texts(tmp_path, N_VOCAB)
    texts.write("000001", Text(np.arange(30, dtype=np.int32), 4))
    found = texts.read("000001")
    assert found is not None
    assert (found.start, found.tokens.tolist()) == (4, [*range(30)])
    for data in (b"", b"\0\0\0", struct.pack("<3i", 0, 1, 2), struct.pack("<3i", 3, 1, 2), struct.pack("<2i", 1, 4096)):
        texts.path("000001").write_bytes(data)
        assert texts.read("000001") is None


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


def test_the_verdict_says_what_was_seen_in_decoding_once_enough_was() -> None:
    few = Judgement(Trial(1.0, 0.3, 10.0, FEW - 1, 0.4, 1e-3))
    assert "14% of its first draft tokens are right" in few.why_not(5e-4, PASSES, 0.14)
    enough = Judgement(Trial(1.0, 0.3, 10.0, FEW, 0.4, 7e-4))
    said = enough.why_not(5e-4, PASSES, 0.14)
    assert f"40% of the {FEW} verified ones were" in said
    assert "0.7 for a draft token" in said
    assert f"{break_even(7e-4, PASSES):.0%} of its draft tokens must be accepted" in said
    assert "14%" not in said


def test_a_draft_that_is_right_too_seldom_sure_is_not_told_that_it_is_wrong() -> None:
    sure = Judgement(Trial(1.01, 0.9, 10.0, FEW, 0.95, 5e-4))
    assert "but it was confident enough of too few" in sure.why_not(5e-4, PASSES, 0.14)


@pytest.mark.parametrize(
    ("gain", "over", "is_kept"), [(1.2, None, True), (1.0, None, False), (1.2, 1.1, True), (1.2, 1.0, False)]
)
def test_a_draft_is_kept_only_if_it_gains_over_none_and_over_the_one_before(
    gain: float, over: float | None, is_kept: bool
) -> None:
    beside = None if over is None else Trial(over, 0.5, 1.0, 99, per_pass=1.3)
    found = Judgement(Trial(gain, 0.5, 1.0, 99, per_pass=1.3), beside, None if over is None else Path("before.gguf"))
    assert found.is_kept == is_kept
    if over == 1.0:
        assert "1.20 times as fast as without it, but 1.00 times as fast as with before.gguf" in found.why_not(
            5e-4, PASSES, 0.1
        )


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

    from tests.test_cli_streams import read_terminal

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


def test_what_gains_without_right_guesses_is_not_kept() -> None:
    found = Judgement(Trial(1.2, 0.0, 10.0, FEW, per_pass=1.01))
    assert not found.is_kept
    assert "1.20 times as fast with it, but not because of it" in found.why_not(1e-3, [1e-2, 2e-2], 0.0)


def test_progress_says_loss_acceptance_time_left_and_expected_gain() -> None:
    told: Any = SimpleNamespace(loss=1.234, right=(0.8, 0.8), seconds_left=600)
    passes = [0.010, 0.012, 0.014]
    said = noted(Stage("training", 3, 9, told), None, passes, 0.001)
    assert said == "loss 1.23, 80% of first tokens right, 10 min left, 1.53 times as fast expected (pays from 34%)"
    assert noted(Stage("reading them", 1200, 5000), 42.0, passes, 0.001) == "1,200 of 5,000, 42 s left"
