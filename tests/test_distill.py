"""`models distill` goes on with what it began, and says in a sentence what stands against it. Needs no PyTorch: the
training itself is in test_distill_torch.py.
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from app.models import distill as command
from runtime.core.errors import ModelError, SlipstreamError
from runtime.loading import profile_cache
from runtime.models.facts import ModelFacts
from runtime.models.header import read_header
from runtime.tools import made_drafts
from runtime.tools.pairing import remembered
from runtime.training import begun, extra, job
from runtime.training.collecting import REPLIES, SAMPLES
from runtime.training.extra import TrainingError
from tests.support.architectures.writer import write_family
from tests.support.cli import failing
from tests.support.distilling import DEMO, Distilling, asked, begun_with, distilling, folders
from tests.support.memory import reading

__all__ = ["distilling"]
posix = pytest.mark.skipif(sys.platform == "win32", reason="limits of files are set otherwise")


def kept(name: str) -> dict[str, int]:
    """The files of the only training, with when they were written."""
    (folder,) = folders()
    return {path.name: path.stat().st_mtime_ns for path in folder.glob(f"work-*/{name}/*")}


# Going on


def test_it_goes_on_with_the_kind_that_it_began_with_though_costs_moved(distilling: Distilling) -> None:
    distilling.promising("head")
    assert distilling.run(looks=40) == 130
    assert "Training a head for target.gguf" in distilling.err
    assert "goes on where it was" in distilling.err
    before = kept(REPLIES)
    distilling.promising("model")
    assert distilling.run() == 0
    assert "Going on to train a head" in distilling.err
    assert distilling.trained[0].kind == "head"
    assert before
    assert folders() == []  # judged, so the next one begins anew
    assert distilling.run() == 0
    assert distilling.trained[1].kind == "model"


def test_replies_that_were_made_are_not_made_again(distilling: Distilling) -> None:
    assert distilling.run(looks=60) == 130
    before = kept(REPLIES)
    assert len(before) > 1
    assert distilling.run(looks=1) == 130
    assert kept(REPLIES) == before


def test_it_goes_on_with_the_chats_that_it_began_with_and_the_next_one_knows_new_ones(distilling: Distilling) -> None:
    old = "What is a deque?", "How do I join two paths?", "What does textwrap do?"
    asked(*old)
    assert distilling.run(source="chats", looks=40) == 130
    began = begun_with()
    assert sorted(began.prompts + began.apart) == sorted(old)
    asked("And what is a heap?")
    assert distilling.run(source="chats", looks=40) == 130
    assert "Going on to train" in distilling.err
    assert begun_with() == began
    assert distilling.run(source="chats") == 0
    assert sorted(distilling.trained[0].prompts + distilling.trained[0].apart) == sorted(old)
    assert distilling.run(source="chats", looks=40) == 130
    assert "Going on" not in distilling.err
    assert "And what is a heap?" in begun_with().prompts + begun_with().apart


def test_another_file_of_prompts_is_another_training(distilling: Distilling, tmp_path: Path) -> None:
    for n, text in enumerate(("What is a list?\n\nWhat is a set?", "What is a heap?\n\nWhat is a dict?"), 1):
        (tmp_path / "questions.txt").write_text(text)
        assert distilling.run(source=str(tmp_path / "questions.txt"), looks=3) == 130
        assert len(folders()) == n


@pytest.mark.skipif(sys.platform == "win32", reason="has other rights")
def test_only_the_user_can_read_the_prompts(distilling: Distilling) -> None:
    asked("What is a deque?", "What is a heap?")
    distilling.run(source="chats", looks=40)
    (folder,) = folders()
    found = [folder, *folder.rglob("*")]
    assert len(found) > 5
    assert [path for path in found if path.stat().st_mode & 0o077] == []


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[]", b'{"number": "1"}', b'{"number": "../..", "kind": "head", "prompts": ["x"], "apart": []}'],
)
def test_a_damaged_record_begins_anew_with_nothing_of_the_one_before(distilling: Distilling, text: bytes) -> None:
    distilling.run(looks=40)
    (folder,) = folders()
    (folder / "about.json").write_bytes(text)
    assert distilling.run(looks=1) == 130
    assert "Going on" not in distilling.err
    assert kept(REPLIES) == {}
    assert len([*folder.glob("work-*")]) == 1


def test_two_processes_do_not_train_one_draft(distilling: Distilling) -> None:
    distilling.run(kind="head", looks=1)
    what = begun_with()
    order = ("head", *what.prompts, "", *what.apart)
    ours = job.Job(DEMO.target, "head", what.prompts, what.apart, order, 500, 10**9, 1)
    assert ours.folder == folders()[0]
    with begun.alone(ours), pytest.raises(TrainingError, match="Another process"):
        distilling.run(kind="head")


# What stands against it


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
    monkeypatch.setattr(extra, "find_spec", lambda name: None)
    with pytest.raises(TrainingError, match="torch and gguf, which are not installed"):
        extra.require_extra()


@pytest.mark.parametrize("kind", ["", "head"])
def test_a_target_that_shows_no_layers_gets_a_draft_model(distilling: Distilling, tmp_path: Path, kind: str) -> None:
    assert distilling.run(str(write_family("qwen2", tmp_path)), kind) == 0
    assert "shows no layers of the architecture 'qwen2', so a draft model is trained instead" in distilling.err
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
        for kind in job.KINDS:
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


def test_where_memory_is_short_nothing_is_begun(distilling: Distilling, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "MemoryReader", lambda: lambda: reading(300))
    with pytest.raises(TrainingError, match="GB are free"):
        distilling.run()
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
    assert "Going on" in distilling.err


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


# What becomes of the draft


def test_a_draft_that_gains_takes_its_place_and_a_worse_one_leaves_it_there(distilling: Distilling) -> None:
    distilling.gains = [1.2]
    assert distilling.run(kind="model") == 0
    first = remembered(DEMO.target)
    assert first is not None
    assert f"Kept: {first} drafts for target.gguf, 1.20 times as fast" in distilling.out
    written = first.stat().st_mtime_ns
    distilling.gains = [1.1, 0.95]
    assert distilling.run(kind="model") == 0
    assert "Not kept. It is 1.10 times as fast as without it, but 0.95 times as fast as with" in distilling.out
    assert remembered(DEMO.target) == first
    assert first.stat().st_mtime_ns == written
    distilling.gains = [1.4, 1.2]
    assert distilling.run(kind="model") == 0
    assert remembered(DEMO.target) == first
    assert first.stat().st_mtime_ns > written
    assert made_drafts.made_here() == [first]
    assert folders() == []


def test_a_draft_that_does_not_gain_leaves_nothing(distilling: Distilling) -> None:
    distilling.gains = [1.0]
    assert distilling.run(kind="head") == 0
    assert "Not kept. It is 1.00 times as fast" in distilling.out
    assert "10% of its first ones are right" in distilling.out
    assert made_drafts.made_here() == folders() == []


# Forgotten


def test_a_training_that_is_forgotten_while_it_runs_ends_and_leaves_nothing(distilling: Distilling) -> None:
    distilling.at_look = made_drafts.forget
    with pytest.raises(SlipstreamError, match="wiped meanwhile, so nothing is kept"):
        distilling.run(looks=40)
    assert folders() == []


def test_what_is_begun_after_that_is_not_written_to_by_the_one_before(distilling: Distilling) -> None:
    def begin_anew() -> None:
        made_drafts.forget()
        with pytest.MonkeyPatch.context() as other:
            other.setattr(command, "collect", lambda *args: (_ for _ in ()).throw(TrainingError("ended")))
            with pytest.raises(TrainingError, match="ended"):
                command.distill("demo", "", "", 500, 10**9, 1, "cpu", 1)

    distilling.at_look = begin_anew
    with pytest.raises(SlipstreamError, match="wiped meanwhile"):
        distilling.run(looks=40)
    assert kept(REPLIES) == {}
    assert len(folders()) == 1


def test_forget_counts_what_it_removed(distilling: Distilling) -> None:
    distilling.run(looks=40)
    assert made_drafts.forget() > 1000
    assert made_drafts.forget() == 0
    assert profile_cache.ProfileCache("none").read() == {}
