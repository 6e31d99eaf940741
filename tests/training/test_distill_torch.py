"""`models distill` with PyTorch: whatever ends a training, the same command goes on with it to a draft, and what is
damaged is made anew.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra `train` is not installed")

from app.models.distill import replied  # noqa: E402
from runtime.core.errors import StoppedError  # noqa: E402
from runtime.engine.pairing import Target  # noqa: E402
from runtime.models.facts import ModelFacts  # noqa: E402
from runtime.models.header import read_model_header  # noqa: E402
from runtime.models.registry import load_registry  # noqa: E402
from runtime.training import begun, run, trainer  # noqa: E402
from runtime.training.collecting import Stage, collect, read_all  # noqa: E402
from runtime.training.conditions import TrainingError  # noqa: E402
from runtime.training.job import Job, n_values  # noqa: E402
from runtime.training.samples import bytes_per_token  # noqa: E402
from tests.support.cli import slipstream  # noqa: E402
from tests.support.waiting import wait_for  # noqa: E402

DEMO = load_registry()["demo"]
ASKED = "What is a deque?", "What does os.path.join do?", "Explain textwrap.wrap.", "What is a heap?"
pytestmark = pytest.mark.slow
CHILD = """
from runtime.training import trainer
trainer.CHECKPOINT = 0.0
from tests.training.test_distill_torch import whole
whole({kind!r}).rename({draft!r})
"""
posix = pytest.mark.skipif(sys.platform == "win32", reason="needs signals and limits of files")


def job_of(kind: str) -> Job:
    return Job(DEMO.target, kind, ASKED[:3], ASKED[3:], (kind, *ASKED), 500, 10**9, 12)


def never() -> bool:
    return False


def nothing(stage: Stage) -> None:
    pass


def whole(kind: str, is_cancelled: Callable[[], bool] = never, report: Callable[[Stage], None] = nothing) -> Path:
    """The command's parts, without its last measurement."""
    job = job_of(kind)
    with begun.alone(job):
        job, work = begun.resumed(job, lambda: kind)
        plain = Target(DEMO).open(None)
        try:
            collect(job, work, partial(replied, plain, is_cancelled), report, is_cancelled)
        finally:
            plain.close()
        read_all(job, work, report, is_cancelled)
        return run.train(job, work, report, is_cancelled)[0]


def settle_in(folder: Path, patch: pytest.MonkeyPatch) -> None:
    for kind in ("CACHE", "DATA"):
        patch.setenv(f"XDG_{kind}_HOME", str(folder / kind))


@pytest.fixture
def interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The checkpoint of a head's training that was stopped after its third step."""
    settle_in(tmp_path, monkeypatch)
    steps: list[Stage] = []
    with pytest.raises(StoppedError):
        whole("head", lambda: len(steps) == 3, lambda stage: steps.append(stage) if stage.right else None)
    (path,) = tmp_path.rglob("checkpoint.npz")
    return path


@posix
@pytest.mark.parametrize("kind", ["head", "model"])
def test_a_training_that_is_killed_again_and_again_ends_with_a_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    settle_in(tmp_path, monkeypatch)
    command = [sys.executable, "-c", CHILD.format(kind=kind, draft=str(tmp_path / "draft.gguf"))]
    for what in ("replies/00*", "samples/00*", "checkpoint.npz"):
        with subprocess.Popen(command, start_new_session=True) as child:
            wait_for(lambda what=what: [*tmp_path.glob(f"CACHE/slipstream/trainings/*/work-*/{what}")])  # type: ignore[misc]
            child.send_signal(signal.SIGKILL)
        assert child.returncode == -signal.SIGKILL
    subprocess.run(command, check=True, timeout=300)
    assert ModelFacts(read_model_header(tmp_path / "draft.gguf")).n_parameters > 10**5


def done_from(stages: list[Stage]) -> int:
    """The number of the first step that was trained."""
    return next(stage.done for stage in stages if stage.right)


def test_a_training_that_was_stopped_goes_on_where_it_was(interrupted: Path) -> None:
    stages: list[Stage] = []
    assert whole("head", report=stages.append).exists()
    assert done_from(stages) == 4


def test_a_damaged_checkpoint_begins_anew(interrupted: Path) -> None:
    job, sound = job_of("head"), interrupted.read_bytes()
    with np.load(interrupted) as found:
        state = dict(found)
    damages = [sound[: len(sound) // 2], b"", os.urandom(1000)]
    for change in ({"step": 10**6}, {"step": np.array("3.5")}, {"fc.weight": np.zeros(3)}, {"more": np.zeros(3)}):
        np.savez(made := BytesIO(), **state | change)  # type: ignore[arg-type]
        damages.append(made.getvalue())
    for data in damages:
        interrupted.write_bytes(data)
        stages: list[Stage] = []
        with pytest.raises(StoppedError):
            run.train(job, interrupted.parent, stages.append, lambda stages=stages: bool(stages))  # type: ignore[misc]
        assert done_from(stages) == 1
    assert whole("head").exists()


@posix
@pytest.mark.parametrize("interval", [0.0, 60.0])
def test_a_full_disk_in_mid_training_loses_nothing(
    interrupted: Path, monkeypatch: pytest.MonkeyPatch, interval: float
) -> None:
    import resource

    monkeypatch.setattr(trainer, "CHECKPOINT", interval)
    before, sound = resource.getrlimit(resource.RLIMIT_FSIZE), interrupted.read_bytes()
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(sound) // 2, before[1]))
    try:
        with pytest.raises(TrainingError, match=r"cannot be written to .*Free some room"):
            whole("head")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert interrupted.read_bytes() == sound
    assert not [*interrupted.parent.glob("*.new")]
    assert whole("head").exists()


@posix
def test_a_disk_that_is_full_at_the_end_loses_nothing(interrupted: Path) -> None:
    import resource

    before, draft = resource.getrlimit(resource.RLIMIT_FSIZE), whole("head").read_bytes()
    interrupted.with_name("draft.gguf").unlink()
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(draft) // 2, before[1]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer.Trainer, "save", lambda self: None)  # there is one of the last step already
        try:
            with pytest.raises(TrainingError, match=r"cannot be written to .*Free some room"):
                whole("head")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not [*interrupted.parent.glob("*.gguf*")]
    assert whole("head").read_bytes() == draft


def test_memory_that_runs_out_in_pytorch_is_a_sentence(interrupted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def learn(self: trainer.Trainer, share: float) -> list[float]:
        torch.empty(2**60)
        return []

    monkeypatch.setattr(trainer.Trainer, "_learn", learn)
    with pytest.raises(TrainingError, match=r"PyTorch failed \(.*\)\. Close other programs and run the same"):
        whole("head")
    assert interrupted.exists()


def test_a_device_that_is_not_there_is_refused() -> None:
    run.require_device("cpu")
    for name in ("cuda", "mps"):
        if not (torch.cuda.is_available() if name == "cuda" else torch.backends.mps.is_available()):
            with pytest.raises(TrainingError, match="Leave out `--device`"):
                run.require_device(name)


def test_the_command_ends_with_a_verdict_in_numbers_and_leaves_nothing_it_does_not_keep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle_in(tmp_path, monkeypatch)
    (tmp_path / "questions.txt").write_text("\n\n".join(ASKED))
    done = slipstream(
        "models", "distill", "demo", "--kind", "model", "--from", str(tmp_path / "questions.txt"), "--tokens", "500",
        "--epochs", "1",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Not kept. ")
    assert any(why in done.stdout for why in ("it was rarely used", "times the speed without it", "it cannot pay here"))
    assert "Training a draft model for target.gguf on 500 tokens of its own replies to 3 prompts" in done.stderr
    assert not [*tmp_path.rglob("*.gguf"), *tmp_path.rglob("*.npz")]


def test_no_more_is_kept_on_disk_than_was_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settle_in(tmp_path, monkeypatch)
    facts = ModelFacts(read_model_header(DEMO.target))
    least = job_of("head").overhead_bytes(facts) + 300 * bytes_per_token(n_values(facts, "head"))
    job = replace(job_of("head"), n_bytes=least, epochs=3)
    monkeypatch.setattr(sys.modules[__name__], "job_of", lambda kind: job)
    monkeypatch.setattr(trainer, "CHECKPOINT", 0.0)
    sizes, rename = list[int](), Path.replace

    def taken(*args: object) -> None:
        sizes.append(sum(path.stat().st_size for path in tmp_path.rglob("work-*/**/*") if path.is_file()))

    def replace_later(self: Path, to: Path) -> Path:
        taken()
        return rename(self, to)

    monkeypatch.setattr(Path, "replace", replace_later)
    whole("head", report=taken)
    assert job.most_tokens == 300
    assert 0.5 * least < max(sizes) <= least
