"""Past replies: learned, found again by the next process, private, bounded, and never worth an error."""

from __future__ import annotations

import json
import logging
import os
import resource
import sqlite3
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from runtime.core.draft import Tokens
from runtime.core.errors import SlipstreamError
from runtime.drafters import reply_store as store
from runtime.drafters.reply_store import Replies, forget
from runtime.drafters.suffix import SuffixDrafter
from runtime.engine import Sampling
from tests.cli.test_cli import QUESTION, slipstream
from tests.conftest import OpenEngine
from tests.drafters.test_drafters import budget, ids, said

N_VOCAB = 200
ASKED, ANSWER = "user: how are you? bot:", " I am well, thank you."


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "replies" / ("0a" * 16)


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
    path.write_bytes(b"damaged")
    learn(drafter_on(path), ASKED, ANSWER)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600  # of the file that replaced it as well


def junk(path: Path) -> None:
    path.write_bytes(b"SLP1" * 999)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3000])


def overwrite(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:4096] + b"?!" * 2048 + data[8192:])


@pytest.mark.parametrize("damage", [junk, cut, overwrite])
def test_a_damaged_file_is_made_anew_with_a_sentence(
    path: Path, caplog: pytest.LogCaptureFixture, damage: Callable[[Path], None]
) -> None:
    running = drafter_on(path)
    learn(running, ASKED, ANSWER)
    damage(path)
    drafter = drafter_on(path)
    assert guess(drafter, ASKED) == ""
    assert caplog.text.count("was damaged") == 1
    learn(drafter, "again: ", ANSWER)
    assert guess(running, "again: ") == guess(drafter_on(path), "again: ") == ANSWER[:8]
    assert caplog.text.count("was damaged") == 1


@pytest.mark.parametrize("value", [b"\0\0\0", "text", 7, np.array([5, N_VOCAB, 5], dtype="<i4").tobytes()])
def test_a_row_that_is_no_reply_of_the_vocabulary_is_left_out(path: Path, value: object) -> None:
    replies = Replies(path, N_VOCAB)
    for reply in lines(2):
        replies.append(reply)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("INSERT INTO replies(tokens) VALUES (?)", (value,))
    later = Replies(path, N_VOCAB)
    assert [reply.tolist() for reply in later.read()] == [reply.tolist() for reply in lines(2)]
    assert not later.has_changed()


def test_a_file_that_another_process_locks_costs_neither_an_error_nor_what_is_known(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(store, "LOCK_TIMEOUT", 0.01)
    caplog.set_level(logging.INFO)
    drafter = drafter_on(path)
    learn(drafter, ASKED, ANSWER)
    with closing(sqlite3.connect(path)) as db:
        db.execute("BEGIN EXCLUSIVE")
        assert guess(drafter, ASKED) == ANSWER[:8]
        learn(drafter, "again: ", "what is not kept")
        assert guess(drafter_on(path), ASKED) == ""
    assert "could not be kept (database is locked)" in caplog.text
    assert guess(drafter_on(path), ASKED) == ANSWER[:8]


def test_to_ask_for_replies_writes_nothing(path: Path) -> None:
    replies = Replies(path, N_VOCAB)
    assert (replies.has_changed(), replies.read()) == (False, [])
    assert not path.parent.exists()


def test_the_file_stays_small_and_the_oldest_replies_go(path: Path) -> None:
    drafter = drafter_on(path, max_bytes=1000)
    for reply in lines(50):
        drafter.begin(ids(""), ())
        drafter.finish(reply, 0)
        assert sum(kept.nbytes for kept in Replies(path, N_VOCAB).read()) <= 1000
    assert path.stat().st_size <= 4 * 4096  # pages
    assert guess(drafter, "0049 is the") == " number "
    assert guess(drafter, "0001 ") == ""
    assert 3 <= len(Replies(path, N_VOCAB, 1000).read()) < 9


def test_an_endless_reply_does_not_push_out_all_others(path: Path) -> None:
    drafter = drafter_on(path, max_bytes=1000)
    learn(drafter, ASKED, ANSWER)
    learn(drafter, "on and on: ", "abcdefgh" * 1000)
    assert guess(drafter, ASKED) == ANSWER[:8]
    assert sum(reply.nbytes for reply in Replies(path, N_VOCAB).read()) <= 1000


def test_two_processes_learn_from_each_other(path: Path) -> None:
    one, two = drafter_on(path), drafter_on(path)
    learn(one, "first: ", "what one has heard")
    learn(two, "second: ", "and two has seen")
    for drafter in (one, two):
        assert guess(drafter, "first: what o") == "ne has h"
        assert guess(drafter, "second: and t") == "wo has s"


def test_what_many_keep_at_once_is_all_kept(path: Path) -> None:
    Replies(path, N_VOCAB).append(ids("the first"))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda reply: Replies(path, N_VOCAB).append(reply), lines(40)))
    assert len(Replies(path, N_VOCAB).read()) == 41


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
    learn(drafter_on(path), ASKED, ANSWER)
    monkeypatch.setattr(store, "own_files", lambda *_: [path.parent])  # a folder cannot be unlinked
    with pytest.raises(SlipstreamError, match=r"replies cannot be removed \(.*\)\. Remove the folder"):
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


def test_a_disk_that_fills_up_costs_one_reply_only(path: Path) -> None:
    drafter, limits = drafter_on(path), resource.getrlimit(resource.RLIMIT_FSIZE)
    learn(drafter, "first: ", "what one has heard")
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))  # bytes of a file, beyond which writing fails
    try:
        learn(drafter, "second: ", "and two has seen")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    learn(drafter, "third: ", "there is room again")
    later = drafter_on(path)
    assert [guess(later, text, 3) for text in ("what one", "and two", "there is")] == [" ha", "", " ro"]


def test_a_reply_that_is_broken_off_is_learned_as_far_as_it_went(
    open_demo: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, finished = open_demo(drafters=("prediction",), fixed_k=8), list[tuple[int, int]]()
    monkeypatch.setattr(
        engine.decoder.active.drafters[0], "finish", lambda context, n_prompt: finished.append((len(context), n_prompt))
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
    assert [path.name for path in tmp_path.rglob("*") if path.is_file() and "chats.db" not in path.name] == []
    texts = []
    for n_accepted in (0, 20):
        reply = json.loads(slipstream(*run, "suffix", env=env).stdout)
        texts.append(reply["text"])
        assert reply["timings"]["draft_n_accepted"] >= n_accepted
    assert texts[0] == texts[1]
    assert "Removed the past replies" in slipstream("forget", env=env).stdout
    assert [path for path in tmp_path.rglob("*") if path.is_file() and "chats.db" not in path.name] == []
    assert "no past replies" in slipstream("forget", env=env).stdout
