"""`models distill` goes on with what it began, keeps what gains, and ends where it is forgotten. Needs no PyTorch: the
training itself is in test_distill_torch.py.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from app.models import distill as command
from runtime.core.errors import SlipstreamError
from runtime.engine.paired import remembered
from runtime.loading import profile_cache
from runtime.training import begun, job, made_drafts
from runtime.training.collecting import REPLIES
from runtime.training.conditions import TrainingError
from tests.support.distilling import DEMO, Distilling, asked, begun_with, distilling, folders, kept

pytestmark = pytest.mark.slow

__all__ = ["distilling"]


# Going on


def test_it_goes_on_with_the_kind_that_it_began_with_though_costs_moved(distilling: Distilling) -> None:
    distilling.promising("head")
    assert distilling.run(looks=40) == 130
    assert "Training a head for target.gguf" in distilling.err
    assert "resumes where it stopped" in distilling.err
    before = kept(REPLIES)
    distilling.promising("model")
    assert distilling.run() == 0
    assert "Continuing to train a head" in distilling.err
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
    assert "Continuing to train" in distilling.err
    assert begun_with() == began
    assert distilling.run(source="chats") == 0
    assert sorted(distilling.trained[0].prompts + distilling.trained[0].apart) == sorted(old)
    assert distilling.run(source="chats", looks=40) == 130
    assert "Continuing" not in distilling.err
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
    assert "Continuing" not in distilling.err
    assert kept(REPLIES) == {}
    assert len([*folder.glob("work-*")]) == 1


def test_files_of_an_earlier_version_of_slipstream_are_made_anew(distilling: Distilling) -> None:
    distilling.run(looks=40)
    (folder,) = folders()
    (work,) = folder.glob("work-*")
    for path in work.glob(f"{REPLIES}/*.npz"):
        path.rename(path.with_suffix(".text"))
    (work / "samples" / "000000.sample").write_bytes(b"old")
    (work / "checkpoint").write_bytes(b"old")
    assert distilling.run() == 0
    assert "Continuing" in distilling.err
    assert len(distilling.trained) == 1


def test_two_processes_do_not_train_one_draft(distilling: Distilling) -> None:
    distilling.run(kind="head", looks=1)
    what = begun_with()
    order = ("head", *what.prompts, "", *what.apart)
    ours = job.Job(DEMO.target, "head", what.prompts, what.apart, order, 500, 10**9, 1)
    assert ours.folder == folders()[0]
    with begun.alone(ours), pytest.raises(TrainingError, match="Another process"):
        distilling.run(kind="head")


# What becomes of the draft


def test_a_draft_that_gains_takes_its_place_and_a_worse_one_leaves_it_there(distilling: Distilling) -> None:
    distilling.gains = [1.2]
    assert distilling.run(kind="model") == 0
    first = remembered(DEMO.target)
    assert first is not None
    assert f"Kept: {first} drafts for target.gguf, 1.20 times as fast" in distilling.out
    written = first.stat().st_mtime_ns
    distilling.gains = [1.1, 1.2]
    assert distilling.run(kind="model") == 0
    assert "Not kept. It: 1.10 times the speed without it" in distilling.out
    assert f"{first.name}, which was kept before: 1.20 times the speed without it" in distilling.out
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
    assert "Not kept. It: 1.00 times the speed without it, 50% of its draft tokens accepted." in distilling.out
    assert "1.03 times the speed is required." in distilling.out
    assert made_drafts.made_here() == folders() == []


# Forgotten


def test_a_training_that_is_forgotten_while_it_runs_ends_and_leaves_nothing(distilling: Distilling) -> None:
    distilling.at_look = made_drafts.forget
    with pytest.raises(SlipstreamError, match="removed meanwhile, so nothing is kept"):
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
    with pytest.raises(SlipstreamError, match="removed meanwhile"):
        distilling.run(looks=40)
    assert kept(REPLIES) == {}
    assert len(folders()) == 1


def test_forget_counts_what_it_removed(distilling: Distilling) -> None:
    distilling.run(looks=40)
    assert made_drafts.forget() > 1000
    assert made_drafts.forget() == 0
    assert profile_cache.ProfileCache("none").read() == {}
