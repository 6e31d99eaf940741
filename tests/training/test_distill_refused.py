"""What stands against `models distill` is said in a sentence, and nothing is lost by it. Needs no PyTorch: what befalls
the training itself is in test_distill_torch.py.
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from app.models import distill as command
from bench.instruments.architectures.writer import write_family
from runtime.core.errors import ModelError
from runtime.models.facts import ModelFacts
from runtime.models.header import read_header
from runtime.training import conditions, job
from runtime.training.collecting import REPLIES, SAMPLES
from runtime.training.conditions import TrainingError
from tests.support.cli import failing
from tests.support.distilling import DEMO, Distilling, asked, distilling, folders, kept
from tests.support.memory import reading

pytestmark = pytest.mark.slow

__all__ = ["distilling"]
posix = pytest.mark.skipif(sys.platform == "win32", reason="limits of files are set otherwise")


def without_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In commands that are run from now on."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['torch'] = None\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def test_without_torch_the_command_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_torch(tmp_path, monkeypatch)
    said = failing("models", "distill", "demo")
    assert "Training needs torch, which is not installed" in said
    assert "pip install 'slipstream[train]'" in said


def test_a_torch_that_cannot_be_loaded_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libtorch.so: cannot open shared object file')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    said = failing("models", "distill", "demo")
    assert "torch is installed and cannot be loaded (libtorch.so: cannot open" in said


def test_both_modules_are_named_where_both_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditions, "find_spec", lambda name: None)
    with pytest.raises(TrainingError, match="torch and gguf, which are not installed"):
        conditions.require_extra()


@pytest.mark.parametrize("kind", ["", "head"])
def test_a_target_that_shows_no_layers_gets_a_draft_model(distilling: Distilling, tmp_path: Path, kind: str) -> None:
    assert distilling.run(str(write_family("qwen2", tmp_path)), kind) == 0
    assert "does not show the layers of the architecture 'qwen2', so a draft model is trained instead" in distilling.err
    assert distilling.trained[0].kind == "model"


def test_a_target_that_nothing_can_draft_for_is_refused(distilling: Distilling, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="Nothing can draft for bert"):
        distilling.run(str(write_family("bert", tmp_path)))


def test_a_machine_with_2_gb_of_memory_trains_for_small_models_and_refuses_large_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small = ModelFacts(read_header(DEMO.target))
    large = times_as_wide(small, 12)
    for free, facts, is_refused in ((1400, small, False), (1400, large, True), (500, small, True)):
        monkeypatch.setattr(job, "MemoryReader", lambda free=free: lambda: reading(free))
        for kind in (job.HEAD, job.MODEL, *job.OWN_KINDS):
            if not is_refused:
                job.require_memory(facts, kind)
                continue
            with pytest.raises(TrainingError, match=r"takes about .* GB of memory, and .* GB are free\. Close"):
                job.require_memory(facts, kind)


def times_as_wide(facts: ModelFacts, times: int) -> ModelFacts:
    """A model so many times as wide."""
    key = "llama.embedding_length"
    metadata = dict(facts.header.metadata) | {key: times * facts.own("embedding_length")}
    return ModelFacts(replace(facts.header, metadata=metadata))


def test_a_target_that_says_too_little_is_refused_and_the_next_training_begins_anew(
    distilling: Distilling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "MAX_TOKENS", 4)
    with pytest.raises(TrainingError, match="too short to learn from"):
        distilling.run()
    assert folders() == []
    assert not distilling.trained


def test_a_lock_that_is_no_lock_is_a_sentence(distilling: Distilling) -> None:
    distilling.run(looks=1)
    (folders()[0] / "lock").write_bytes(b"no database" * 1000)
    with pytest.raises(TrainingError, match=r"cannot be written to .*not a database"):
        distilling.run()


def test_where_memory_is_short_nothing_is_trained(distilling: Distilling, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "MemoryReader", lambda: lambda: reading(300))
    with pytest.raises(TrainingError, match="GB are free"):
        distilling.run()
    assert not distilling.trained


def test_a_budget_of_disk_that_is_too_small_is_refused_with_what_would_do(
    distilling: Distilling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "PER_TRAINED", 4000)
    with pytest.raises(TrainingError, match=r"keeps at least 8\.\d\d GB on disk meanwhile\. Allow .* `--disk`"):
        distilling.run(kind="head")
    assert folders() == []
    assert not distilling.trained


@posix
@pytest.mark.parametrize(("room", "part"), [(16, REPLIES), (4096, SAMPLES)])
def test_a_full_disk_is_a_sentence_and_loses_nothing(distilling: Distilling, room: int, part: str) -> None:
    import resource

    distilling.run(kind="head", looks=1)
    before, at_first = resource.getrlimit(resource.RLIMIT_FSIZE), kept(REPLIES)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))  # bytes of a file, beyond which writing fails
    try:
        with pytest.raises(TrainingError, match=r"cannot be written to .*Free some room there") as refused:
            distilling.run(kind="head")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert str(folders()[0]) in str(refused.value)
    assert len(kept(REPLIES)) > len(at_first) or part == REPLIES
    assert not [name for name in kept(part) if name.endswith(".new")]
    assert distilling.run(kind="head") == 0
    assert "Continuing" in distilling.err


@pytest.mark.parametrize("is_there", [True, False])
def test_a_target_that_changed_meanwhile_ends_it_and_loses_nothing(
    distilling: Distilling, tmp_path: Path, is_there: bool
) -> None:
    target = tmp_path / "target.gguf"
    shutil.copy(DEMO.target, target)
    before = target.stat()

    def change() -> None:
        os.utime(target) if is_there else target.rename(tmp_path / "elsewhere")

    distilling.at_look = change
    with pytest.raises(ModelError, match=r"target\.gguf was changed or removed while"):
        distilling.run(str(target), looks=40)
    at_first = kept(REPLIES)
    if not is_there:
        (tmp_path / "elsewhere").rename(target)
    os.utime(target, ns=(before.st_atime_ns, before.st_mtime_ns))
    distilling.at_look = None
    assert distilling.run(str(target), looks=1) == 130  # the old file is back
    assert at_first
    assert kept(REPLIES) == at_first


@pytest.mark.parametrize(
    "data",
    [b"", b"\0" * 4, b"\xff" * 400, b"\1\0\0\0" * 3 + b"\0", os.urandom(400)],
    ids=["empty", "one number", "no words", "cut off", "noise"],
)
def test_a_damaged_reply_is_made_anew(distilling: Distilling, data: bytes) -> None:
    distilling.run(looks=40)
    (folder,) = folders()
    first = sorted(folder.glob(f"work-*/{REPLIES}/*"))[0]
    sound = first.read_bytes()
    first.write_bytes(data)
    distilling.run(looks=40)
    assert first.read_bytes() == sound


def test_a_question_longer_than_the_context_is_cut(distilling: Distilling) -> None:
    asked("什么" * 200_000, "word " * 50_000, "What is a heap?")
    assert distilling.run(source="chats") == 0
    assert {len(each) for each in distilling.trained[0].prompts + distilling.trained[0].apart} == {1200, 15}
