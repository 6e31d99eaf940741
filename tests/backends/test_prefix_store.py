"""States of prompts on disk: the longest is found, whatever is damaged is not there, and the disk does not fill up."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from runtime.backends.stored import prefix_store
from runtime.backends.stored.checkpoints import Checkpoint
from runtime.backends.stored.prefix_index import BLOCK, EMPTY
from runtime.backends.stored.prefix_store import CHUNK, PrefixStore
from runtime.backends.stored.saved_states import SavedState
from runtime.core.draft import Tokens
from tests.support.memory import PAGES, play_pages

TEXT: Tokens = np.random.default_rng(1).integers(0, 9999, 4096).astype(np.int32)
PAUSE = EMPTY.sum


def state(tokens: Tokens, n_bytes: int = 1000, checkpoints: tuple[int, ...] | None = None) -> SavedState:
    rng = np.random.default_rng(len(tokens))
    parts = checkpoints and tuple(Checkpoint(n, rng.integers(0, 256, 10 + n, np.uint8)) for n in checkpoints)
    return SavedState(tokens, rng.integers(0, 256, n_bytes, np.uint8), len(tokens), parts, n_exact=len(tokens))


def opened(place: Path, max_bytes: int = 10**9, model: str = "m") -> PrefixStore:
    return PrefixStore(model, max_bytes, place / "prompts")


def put(store: PrefixStore, saved: SavedState) -> bool:
    return store.write(saved, 1e-3, PAUSE)


def n_found(store: PrefixStore, context: Tokens) -> int:
    entry = store.find(context)
    return entry.saved.n_shared(context, exact=False) if entry else 0


@PAGES
def test_the_longest_prefix_is_found_and_its_bytes_are_what_was_written(
    page: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play_pages(monkeypatch, page)
    store = opened(tmp_path)
    short, long = state(TEXT[: 5 * BLOCK]), state(np.append(TEXT[: 7 * BLOCK], [1, 2, 3]).astype(np.int32), CHUNK + 7)
    assert put(store, long)
    assert put(store, short)
    entry = opened(tmp_path).find(TEXT)
    assert entry is not None
    assert entry.saved.n_shared(TEXT, exact=False) == 7 * BLOCK
    found = store.read(entry)
    assert found is not None
    assert np.array_equal(found.state, long.state)
    assert np.array_equal(found.tokens, long.tokens)


def test_a_prompt_of_another_model_or_another_beginning_is_not_found(tmp_path: Path) -> None:
    assert put(opened(tmp_path), state(TEXT[:1000]))
    assert opened(tmp_path, model="other").find(TEXT) is None
    assert opened(tmp_path).find(np.append(np.int32(1), TEXT)) is None
    assert opened(tmp_path / "none").find(TEXT) is None


def test_what_cannot_be_cut_is_found_up_to_its_checkpoints(tmp_path: Path) -> None:
    store, saved = opened(tmp_path), state(TEXT[:1000], checkpoints=(300, 700))
    assert put(store, saved)
    assert n_found(store, TEXT) == 1000
    assert n_found(store, np.append(TEXT[:800], TEXT[:300]).astype(np.int32)) == 700
    assert n_found(store, np.append(TEXT[:500], TEXT[:300]).astype(np.int32)) == 300
    assert n_found(store, TEXT[:200]) == 0
    entry = store.find(TEXT)
    assert entry is not None
    found = store.read(entry)
    assert found is not None
    assert found.checkpoints is not None
    assert saved.checkpoints is not None
    assert [np.array_equal(a.state, b.state) for a, b in zip(found.checkpoints, saved.checkpoints, strict=True)]


def test_only_what_was_read_is_given_to_who_must_have_that(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.write(replace(state(TEXT[:1000]), n_exact=400), 1e-3, PAUSE)
    entry = store.find(TEXT, is_pure=True)
    assert entry is not None
    assert entry.saved.n_shared(TEXT, exact=True) == 400
    assert n_found(store, TEXT) == 1000


def test_a_conversation_that_goes_on_takes_the_place_of_what_it_was(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for n in (500, 1000, 1500):
        assert put(store, state(TEXT[:n]))
    assert len(list(store.place.glob("*.state"))) == 1
    assert store.n_stored(TEXT) == 1500


def test_where_there_is_no_room_the_oldest_goes_and_what_was_used_stays_longer(tmp_path: Path) -> None:
    store = opened(tmp_path, max_bytes=3000)
    texts = [np.roll(TEXT, n)[:300] for n in range(4)]
    for text in texts[:3]:
        assert put(store, state(text))
    entry = store.find(np.append(texts[0], 1).astype(np.int32))
    assert entry is not None
    assert store.read(entry) is not None
    assert put(store, state(texts[3]))
    assert [store.n_stored(text) for text in texts] == [300, 0, 300, 300]
    assert not put(store, state(np.roll(TEXT, 9)[:300], n_bytes=3001))
    assert [store.n_stored(text) for text in texts] == [300, 0, 300, 300]


def test_states_take_a_tenth_of_the_free_disk_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix_store.shutil, "disk_usage", lambda path: SimpleNamespace(free=9_000))
    store = opened(tmp_path)
    assert not put(store, state(TEXT[:300], n_bytes=100_000))
    assert put(store, state(TEXT[:300], n_bytes=500))


@pytest.mark.parametrize("damage", ["cut", "changed", "gone", "another"])
def test_a_file_that_is_not_what_was_written_is_forgotten(damage: str, tmp_path: Path) -> None:
    store = opened(tmp_path)
    assert put(store, state(TEXT[:1000]))
    (path,) = store.place.glob("*.state")
    data = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes({"cut": data[:-1], "changed": b"x" + data[1:], "another": b""}[damage])
    entry = store.find(TEXT)
    assert entry is not None
    assert store.read(entry) is None
    assert store.find(TEXT) is None
    assert not path.exists()
    assert put(store, state(TEXT[:1000]))


def test_an_index_that_is_damaged_is_begun_anew(tmp_path: Path) -> None:
    store = opened(tmp_path)
    assert put(store, state(TEXT[:1000]))
    (index,) = store.place.glob("*.sqlite")
    index.write_bytes(b"this is no database" * 100)
    assert store.find(TEXT) is None
    assert put(store, state(TEXT[:1000]))
    assert n_found(store, TEXT) == 1000


def test_what_ended_processes_left_is_swept_after_an_hour(tmp_path: Path) -> None:
    store = opened(tmp_path)
    assert put(store, state(TEXT[:1000]))
    (kept,) = store.place.glob("*.state")
    left = [store.place / "slipstream-1-1-1.part", store.place / "slipstream-99.state"]
    for path in left:
        path.write_bytes(b"x")
    opened(tmp_path)
    assert all(path.exists() for path in left)
    for path in left:
        os.utime(path, (time.time() - 9999,) * 2)
    opened(tmp_path)
    assert not any(path.exists() for path in left)
    assert kept.exists()


@pytest.mark.parametrize("problem", ["full", "locked out"])
def test_a_disk_that_takes_nothing_is_told_once_and_left_alone(
    problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*args: Any) -> int:
        raise OSError(28, "No space left on device")

    store = opened(tmp_path)
    if problem == "full":
        monkeypatch.setattr(prefix_store, "written", refuse)
    else:
        (tmp_path / "prompts").write_text("a file where the folder should be")
    assert not put(store, state(TEXT[:1000]))
    assert not put(store, state(TEXT[:1000]))
    assert not store.is_writable
    assert len(caplog.records) == 1
    assert "Prompts are no longer kept on disk" in caplog.text
    assert store.find(TEXT) is None


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
def test_the_files_are_closed_to_others(tmp_path: Path) -> None:
    store = opened(tmp_path)
    assert put(store, state(TEXT[:1000]))
    assert store.place.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in store.place.iterdir()} == {0o600}


def test_two_processes_write_at_once(tmp_path: Path) -> None:
    first, second = opened(tmp_path), opened(tmp_path)
    assert put(first, state(TEXT[:1000]))
    assert put(second, state(np.roll(TEXT, 1)[:1000]))
    assert first.n_stored(np.roll(TEXT, 1)[:1000]) == second.n_stored(TEXT[:1000]) == 1000


def test_a_prompt_is_found_among_thousands_within_milliseconds_of_computing(tmp_path: Path) -> None:
    store = opened(tmp_path)
    with store._index.opened() as db:
        rows = ((os.urandom(16), number, BLOCK * i) for number in range(2000) for i in range(100))
        db.executemany("INSERT INTO blocks VALUES (?, ?, ?)", rows)
    assert put(store, state(TEXT[:4000]))
    began = time.process_time()
    assert n_found(store, TEXT) == 4000
    assert time.process_time() - began < 1  # a few milliseconds, on a machine that has nothing else to do
