"""Stored prompts whose index or inside is wrong, in folders that are also others': nothing is waited for or lost."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest

from runtime.backends.stored import prefix_store
from runtime.backends.stored.prefix_store import forget, size
from tests.backends.test_prefix_store import TEXT, opened, put, state

COLUMNS = ["tokens", "sizes", "crc", "token_seconds", "n_asked", "n_pure"]
WRONG = [
    *((column, value) for column in COLUMNS for value in ("'x'", "x'00'", "-5", "9e999")),
    *(
        ("sizes", f"'{value}'")
        for value in ("any,1000:-1", "any", "", "any,7:1000", "whole,1000:9,5000:1", "any,1000:9:9")
    ),
    ("tokens", "x'000000'"),
]


@pytest.mark.parametrize(("column", "value"), WRONG)
def test_an_index_of_another_form_is_as_if_it_were_not_there(column: str, value: str, tmp_path: Path) -> None:
    store = opened(tmp_path)
    assert put(store, state(TEXT[:1000]))
    with store._index.opened() as db:
        db.execute(f"UPDATE states SET {column} = {value}")
    entry = store.find(TEXT)
    assert entry is None or store.read(entry) is None
    assert put(opened(tmp_path), state(TEXT[:1000]))


@pytest.mark.parametrize(
    "table", ["states(id TEXT, tokens, n_asked, n_pure, sizes, crc, token_seconds, n_bytes, n_used, used)", "states(x)"]
)
def test_an_index_with_other_tables_removes_nothing_elsewhere(table: str, tmp_path: Path) -> None:
    store, thesis = opened(tmp_path), tmp_path / "thesis.state"
    store.place.mkdir()
    thesis.write_text("mine")
    with closing(sqlite3.connect(store._index.path)) as db:
        db.execute(f"CREATE TABLE {table}")
        with suppress(sqlite3.OperationalError):
            db.execute("INSERT INTO states(id) VALUES ('../../thesis')")
        db.commit()
    again = opened(tmp_path)
    put(again, state(TEXT[:1000], n_bytes=2000))
    assert thesis.read_text() == "mine"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes have no names here")
@pytest.mark.parametrize("what", ["index", "state"])
def test_a_pipe_in_a_files_place_is_not_waited_for(what: str, tmp_path: Path) -> None:
    store = opened(tmp_path)
    assert put(store, state(TEXT[:1000]))
    (path,) = store.place.glob("*.sqlite" if what == "index" else "*.state")
    path.unlink()
    os.mkfifo(path)
    entry = store.find(TEXT)
    assert entry is None or store.read(entry) is None
    assert opened(tmp_path).find(TEXT) is None


@pytest.mark.parametrize("is_link", [True, False])
def test_only_what_was_made_here_is_removed(is_link: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """People move the cache to another disk by a link, which may lead to a folder with files of theirs."""
    disk = tmp_path / ("disk" if is_link else "prompts")
    disk.mkdir()
    disk.chmod(0o750)
    if is_link:
        (tmp_path / "prompts").symlink_to(disk)
    names = "thesis.txt", "7.state", "1-1.part", "index-1.sqlite", "slipstream-notes.state", "slipstream-1.state.bak"
    theirs = [disk / name for name in names]
    for path in theirs:
        path.write_text("mine")
        os.utime(path, (time.time() - 9999,) * 2)
    (disk / "slipstream-5.state").symlink_to(theirs[0])
    (disk / "slipstream-6.state").mkdir()
    monkeypatch.setattr(prefix_store, "folder", lambda: tmp_path / "prompts")
    store = opened(tmp_path)
    assert put(store, state(TEXT[:1000]))
    opened(tmp_path)
    assert forget() > 1000
    assert {path.name for path in disk.iterdir()} == {*names, "slipstream-5.state", "slipstream-6.state"}
    assert all(path.read_text() == "mine" for path in theirs)
    assert disk.stat().st_mode & 0o777 == (0o750 if is_link else 0o700)
    assert size(disk) == forget() == 0


def test_a_state_in_whose_use_a_process_ended_is_removed(tmp_path: Path) -> None:
    """Its checksum is right and its inside wrong, so that each process that uses it would end."""
    code = (
        "import os, sys; from pathlib import Path; from tests.backends.test_prefix_store import *\n"
        "store = opened(Path(sys.argv[1])); assert store.read(store.find(TEXT)) is not None; os._exit(1)"
    )
    for n_ended in (0, 1):
        store = opened(tmp_path)
        assert put(store, state(TEXT[:1000]))
        if n_ended:
            subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False, cwd=Path(__file__).parents[2])
        assert (opened(tmp_path).find(TEXT) is None) == bool(n_ended)
    assert not list((tmp_path / "prompts").glob("*.state"))


@pytest.mark.parametrize(("has_failed", "is_refused"), [(False, False), (True, False), (False, True)])
def test_a_state_with_which_a_reply_failed_is_removed(has_failed: bool, is_refused: bool, tmp_path: Path) -> None:
    store = opened(tmp_path)
    assert put(store, state(TEXT[:1000]))
    entry = store.find(TEXT)
    assert entry is not None
    found = store.read(entry)
    assert found is not None
    store.settle([found] if is_refused else [state(TEXT[:9])], has_failed)
    assert (store.find(TEXT) is None) == (has_failed or is_refused)
    assert store._index.fatal() == []
