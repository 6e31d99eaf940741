"""`models distill` with PyTorch: whatever ends a training, the same command goes on with it to the same draft, and what
is damaged is made anew.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the extra `train` is not installed")

from runtime.core.errors import StoppedError  # noqa: E402
from runtime.models.facts import ModelFacts  # noqa: E402
from runtime.models.header import read_model_header  # noqa: E402
from runtime.models.registry import load_registry  # noqa: E402
from runtime.tools.pairing import Target  # noqa: E402
from runtime.training import begun, run, trainer  # noqa: E402
from runtime.training.collecting import Stage, collect, read_all  # noqa: E402
from runtime.training.extra import TrainingError  # noqa: E402
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
from tests.test_distill_torch import whole
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
            collect(job, work, plain, report, is_cancelled)
        finally:
            plain.close()
        read_all(job, work, report, is_cancelled)
        return run.train(job, work, report, is_cancelled)[0]


def settle_in(folder: Path, patch: pytest.MonkeyPatch) -> None:
    for kind in ("CACHE", "DATA"):
        patch.setenv(f"XDG_{kind}_HOME", str(folder / kind))


@pytest.fixture(scope="module")
def drafts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What trainings give that nothing interrupts."""
    found = {}
    for kind in ("head", "model"):
        with pytest.MonkeyPatch.context() as patch:
            settle_in(tmp_path_factory.mktemp(kind), patch)
            found[kind] = whole(kind).read_bytes()
    return found


@pytest.fixture
def interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The checkpoint of a head's training that was stopped after its third step."""
    settle_in(tmp_path, monkeypatch)
    steps: list[Stage] = []
    with pytest.raises(StoppedError):
        whole("head", lambda: len(steps) == 3, lambda stage: steps.append(stage) if stage.told else None)
    (path,) = tmp_path.rglob("checkpoint")
    return path


@posix
@pytest.mark.parametrize("kind", ["head", "model"])
def test_a_training_that_is_killed_again_and_again_ends_with_the_same_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drafts: dict[str, bytes], kind: str
) -> None:
    settle_in(tmp_path, monkeypatch)
    command = [sys.executable, "-c", CHILD.format(kind=kind, draft=str(tmp_path / "draft.gguf"))]
    for what in ("replies/00*", "samples/00*", "checkpoint"):
        with subprocess.Popen(command, start_new_session=True) as child:
            wait_for(lambda what=what: [*tmp_path.glob(f"CACHE/slipstream/trainings/*/work-*/{what}")])  # type: ignore[misc]
            child.send_signal(signal.SIGKILL)
        assert child.returncode == -signal.SIGKILL
    subprocess.run(command, check=True, timeout=300)
    assert (tmp_path / "draft.gguf").read_bytes() == drafts[kind]


def test_a_training_that_was_stopped_gives_the_same_draft(interrupted: Path, drafts: dict[str, bytes]) -> None:
    assert whole("head").read_bytes() == drafts["head"]


class Hostile:
    """What would run a command if it were unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.path),)


def test_a_damaged_checkpoint_is_removed_with_a_sentence_and_runs_nothing(
    interrupted: Path, drafts: dict[str, bytes]
) -> None:
    job, sound, ran = job_of("head"), interrupted.read_bytes(), interrupted.with_name("ran")
    state = torch.load(interrupted, weights_only=True)
    middle = bytearray(sound)
    middle[len(sound) // 2] ^= 0xFF
    damages = [sound[:n] for n in (0, 1, 30, len(sound) // 2, len(sound) - 1)]
    damages += [bytes(middle), b"\x80\x04.", os.urandom(1000), pickle.dumps(Hostile(ran)), pickle.dumps([1, 2])]
    others = [state | {"step": 10**6}, state | {"step": "3"}, state | {"module": {}}, state | {"optimizer": {}}, [], 3]
    others.append(state | {"step": Hostile(ran)})
    for data in (*damages, *others):
        interrupted.write_bytes(data) if isinstance(data, bytes) else torch.save(data, interrupted)
        with pytest.raises(TrainingError, match=r"checkpoint of the training in .* was damaged and is removed"):
            run.train(job, interrupted.parent, nothing, never)
        assert not interrupted.exists()
    assert not ran.exists()
    assert whole("head").read_bytes() == drafts["head"]


@posix
@pytest.mark.parametrize("interval", [0.0, 60.0])
def test_a_full_disk_in_mid_training_loses_nothing(
    interrupted: Path, drafts: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, interval: float
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
    assert whole("head").read_bytes() == drafts["head"]


@posix
def test_a_disk_that_is_full_at_the_end_loses_nothing(interrupted: Path, drafts: dict[str, bytes]) -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    whole("head").unlink()
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(drafts["head"]) // 2, before[1]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer.Trainer, "save", lambda self, path: None)  # there is one of the last step already
        try:
            with pytest.raises(TrainingError, match=r"cannot be written to .*Free some room"):
                whole("head")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not [*interrupted.parent.glob("*.gguf*")]
    assert whole("head").read_bytes() == drafts["head"]


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
    whys = "must be accepted", "high enough", "not because of it", "too few to tell"  # all that a verdict can say
    assert any(why in done.stdout for why in whys)
    assert "Training a draft model for target.gguf on 500 tokens of its own replies to 3 prompts" in done.stderr
    assert not [*tmp_path.rglob("*.gguf"), *tmp_path.rglob("checkpoint"), *tmp_path.rglob("*.text")]


def test_no_more_is_kept_on_disk_than_was_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settle_in(tmp_path, monkeypatch)
    facts = ModelFacts(read_model_header(DEMO.target))
    least = job_of("head").overhead_bytes(facts) + 300 * bytes_per_token(n_values(facts, "head"))
    job = replace(job_of("head"), n_bytes=least, epochs=3)
    monkeypatch.setattr(sys.modules[__name__], "job_of", lambda kind: job)
    monkeypatch.setattr(trainer, "CHECKPOINT", 0.0)
    sizes, save = list[int](), torch.save

    def taken(*args: object) -> None:
        sizes.append(sum(path.stat().st_size for path in tmp_path.rglob("work-*/**/*") if path.is_file()))

    monkeypatch.setattr(trainer.torch, "save", lambda *args: (save(*args), args[1].flush(), taken()))
    whole("head", report=taken)
    assert job.most_tokens == 300
    assert 0.5 * least < max(sizes) <= least
