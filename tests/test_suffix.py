"""Past replies: learned, found again by the next process, private, bounded, and never worth an error."""

from __future__ import annotations

import errno
import json
import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from runtime.core.draft import Tokens
from runtime.core.errors import SlipstreamError
from runtime.drafters import reply_store as store
from runtime.drafters.reply_store import Replies, forget, pack, unpack
from runtime.drafters.suffix import SuffixDrafter
from runtime.engine import Sampling
from tests.conftest import OpenEngine
from tests.test_cli import QUESTION, slipstream
from tests.test_drafters import budget, ids, said

N_VOCAB = 200
ASKED, ANSWER = "user: how are you? bot:", " I am well, thank you."


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "replies" / "model"


def drafter_on(path: Path, max_bytes: int = 4096) -> SuffixDrafter:
    drafter = SuffixDrafter(Replies(path, N_VOCAB, max_bytes))
    drafter.begin(ids(""), ())
    return drafter


def learn(drafter: SuffixDrafter, prompt: str, reply: str) -> None:
    drafter.finish(ids(prompt + reply), len(prompt))


def guess(drafter: SuffixDrafter, context: str, k: int = 8) -> str:
    drafter.begin(ids(context), ())
    return said(drafter.propose(ids(context), budget(k)))


def lines(n: int) -> list[Tokens]:
    return [ids(f"{i:04} is the number of this reply") for i in range(n)]


def test_what_was_said_is_found_by_the_next_process(path: Path) -> None:
    learn(drafter_on(path), ASKED, ANSWER)
    later = drafter_on(path)
    assert guess(later, ASKED) == ANSWER[:8]  # from the first token on, by what stood before it
    assert guess(later, "Well, I am w") == "ell, tha"
    assert guess(later, "Nothing of it") == ""


def test_what_is_said_more_often_is_likelier(path: Path) -> None:
    drafter, asked = drafter_on(path), list[float]()
    for i, reply in enumerate((" tea, please", " tea for two", " milk, no tea")):
        learn(drafter, f"{i} would you like", reply)
    assert said(drafter.propose(ids("what I like"), budget(4, lambda c: asked.append(c) or True))) == " tea"
    assert 0 < asked[1] < asked[0] < 1  # of all three go two on with "t",
    assert asked[1] < asked[2] < asked[3] < 1  # and those two agree


def test_a_draft_ends_where_the_reply_did(path: Path) -> None:
    drafter = drafter_on(path)
    learn(drafter, "a question ", "first reply")
    learn(drafter, "b question ", "other reply")
    assert guess(drafter, "a question first re") == "ply"


def test_a_reply_known_word_for_word_is_kept_once_and_a_tiny_one_not_at_all(path: Path) -> None:
    learn(drafter_on(path), ASKED, ANSWER)
    size = path.stat().st_size
    learn(drafter_on(path), ASKED, ANSWER)
    learn(drafter_on(path), ASKED, "no")
    assert path.stat().st_size == size


def test_nobody_else_may_read_it(path: Path) -> None:
    learn(drafter_on(path), ASKED, ANSWER)
    for loosened in (False, True):
        if loosened:
            path.chmod(0o644)
            path.parent.chmod(0o755)
            learn(drafter_on(path), "again:", ANSWER)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    drafter_on(path, max_bytes=64)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600  # of the file that replaced it as well


def junk(data: bytes) -> bytes:
    return b"\0" * 99


def cut(data: bytes) -> bytes:
    return data[:-3]


def flip(data: bytes) -> bytes:
    return data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]


def forge(data: bytes) -> bytes:
    return data[: -len(pack(lines(3)[2]))] + pack(np.array([5, N_VOCAB, 5], dtype=np.int32))


def sprinkle(data: bytes) -> bytes:
    half = len(pack(lines(1)[0])) + 20
    return data[:half] + b"?!" + data[half:]


@pytest.mark.parametrize(("damage", "n_kept"), [(cut, 2), (flip, 2), (forge, 2), (sprinkle, 2), (junk, 0)])
def test_a_damaged_file_is_mended_with_a_sentence_and_what_is_whole_is_kept(
    path: Path, caplog: pytest.LogCaptureFixture, damage: Callable[[bytes], bytes], n_kept: int
) -> None:
    kept = Replies(path, N_VOCAB)
    for reply in lines(3):
        kept.append(reply)
    path.write_bytes(damage(path.read_bytes()))
    assert len(kept.read()) == n_kept
    assert f"was damaged and is made anew. Replies in it that are whole: {n_kept}." in caplog.text
    caplog.clear()
    assert len(Replies(path, N_VOCAB).read()) == n_kept
    assert caplog.text == ""


def test_a_file_of_another_kind_is_refused_record_by_record() -> None:
    assert unpack(b"SLP1" * 100, N_VOCAB) == ([], False)
    assert unpack(pack(ids("")) + pack(ids("ab"))[:-1], N_VOCAB)[1] is False


def test_the_file_stays_small_and_the_oldest_replies_go(path: Path) -> None:
    drafter = drafter_on(path, max_bytes=1000)
    for reply in lines(50):
        drafter.begin(ids(""), ())
        drafter.finish(reply, 0)
        assert path.stat().st_size <= 1000 + len(pack(reply))
    assert guess(drafter, "0049 is the") == " number "
    assert guess(drafter, "0001 ") == ""
    assert 3 <= len(Replies(path, N_VOCAB, 1000).read()) < 9


def test_an_endless_reply_does_not_push_out_all_others(path: Path) -> None:
    drafter = drafter_on(path, max_bytes=1000)
    learn(drafter, ASKED, ANSWER)
    learn(drafter, "on and on: ", "abcdefgh" * 1000)
    assert guess(drafter, ASKED) == ANSWER[:8]
    assert path.stat().st_size <= 1000


def test_two_processes_learn_from_each_other(path: Path) -> None:
    one, two = drafter_on(path), drafter_on(path)
    learn(one, "first: ", "what one has heard")
    learn(two, "second: ", "and two has seen")
    for drafter in (one, two):
        assert guess(drafter, "first: what o") == "ne has h"
        assert guess(drafter, "second: and t") == "wo has s"


def test_what_was_wiped_is_forgotten_by_those_who_run(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "folder", lambda: path.parent)
    drafter = drafter_on(path)
    learn(drafter, ASKED, ANSWER)
    size = path.stat().st_size
    assert forget() == size
    assert (list(path.parent.iterdir()), forget()) == ([], 0)
    assert guess(drafter, ASKED) == ""
    learn(drafter, ASKED, ANSWER)
    assert guess(drafter_on(path), ASKED) == ANSWER[:8]


def test_what_cannot_be_wiped_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "folder", lambda: path.parent)
    (path / "a folder in its place").mkdir(parents=True)
    with pytest.raises(SlipstreamError, match=r"model cannot be removed \(.*\)\. Remove the folder"):
        forget()


def test_without_a_place_to_write_it_learns_for_now_and_within_bounds(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    (tmp_path / "file").write_text("not a folder")
    drafter = drafter_on(tmp_path / "file" / "model", max_bytes=1000)
    learn(drafter, ASKED, ANSWER)
    assert guess(drafter, ASKED) == ANSWER[:8]
    assert "could not be kept" in caplog.text
    for reply in lines(9):
        drafter.finish(reply, 0)
    assert guess(drafter, ASKED) == ""


def test_a_disk_that_fills_up_costs_one_reply_only(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drafter, write = drafter_on(path), os.write
    learn(drafter, "first: ", "what one has heard")
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:20]))
    learn(drafter, "second: ", "and two has seen")

    def refuse(file: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", refuse)
    learn(drafter, "third: ", "quickly gone")
    monkeypatch.setattr(os, "write", write)
    learn(drafter, "fourth: ", "there is room again")
    later = drafter_on(path)
    assert [guess(later, text, 3) for text in ("what one", "and two", "quickly", "there is")] == [" ha", "", "", " ro"]


def test_a_reply_that_is_broken_off_is_learned_as_far_as_it_went(
    open_demo: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, finished = open_demo(drafters=("prediction",), fixed_k=8), list[tuple[int, int]]()
    monkeypatch.setattr(
        engine.loop.drafters[0], "finish", lambda context, n_prompt: finished.append((len(context), n_prompt))
    )
    reply = engine.reply(QUESTION, Sampling(temperature=0))
    n = len(next(reply).tokens)
    reply.close()
    [(n_context, n_prompt)] = finished
    assert n_context == n_prompt + n


def test_replies_are_kept_only_when_asked_for_and_wiped_by_a_command(tmp_path: Path) -> None:
    env = {**os.environ, "XDG_DATA_HOME": str(tmp_path)}
    run = ("run", QUESTION, "--draft", "off", "--fixed-k", "8", "--json", "--max-tokens", "30", "--drafters")
    slipstream(*run, "ngram", env=env)
    assert list(tmp_path.rglob("*")) == []
    texts = []
    for n_accepted in (0, 20):
        reply = json.loads(slipstream(*run, "suffix", env=env).stdout)
        texts.append(reply["text"])
        assert reply["timings"]["draft_n_accepted"] >= n_accepted
    assert texts[0] == texts[1]
    assert "Removed the past replies" in slipstream("forget", env=env).stdout
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert "no past replies" in slipstream("forget", env=env).stdout
