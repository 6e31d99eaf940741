"""llama.cpp's `POST /slots/{id}`: a conversation is saved, erased and restored, and not read again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from runtime.engine import Options
from runtime.engine.loaded import LoadedEngine
from runtime.models.registry import load_registry
from tests.support.serving import Running, running
from tests.test_prefixes import PROMPT

ASKED = {"prompt": PROMPT, "n_predict": 8, "temperature": 0, "seed": 1}


@pytest.fixture(scope="module")
def here() -> Iterator[Running]:
    def open_engine(on_progress: Any) -> LoadedEngine:
        return LoadedEngine(load_registry()["demo"], Options(threads=1, n_ctx=1024, slots=3), on_progress)

    with running(open_engine) as here:
        yield here


@pytest.fixture
def folder(here: Running, tmp_path: Path) -> Path:
    here.server.app.state.slot_folder = tmp_path
    return tmp_path


def asked(here: Running) -> tuple[str, int]:
    reply = here.client().post("/completion", json=ASKED).json()
    return reply["content"], reply["timings"]["cache_n"]


def act(here: Running, action: str, slot: str = "0", **body: object) -> httpx2.Response:
    return here.client().post(f"/slots/{slot}?action={action}", json=body)


def test_a_conversation_comes_back_from_its_file(here: Running, folder: Path) -> None:
    text = asked(here)[0]
    saved = act(here, "save", filename="a.bin").json()
    assert saved["n_written"] == (folder / "a.bin").stat().st_size
    assert saved["timings"]["save_ms"] > 0
    erased = act(here, "erase").json()
    assert erased == {"id_slot": 0, "n_erased": saved["n_saved"]}
    assert asked(here) == (text, 0)
    act(here, "erase")
    restored = act(here, "restore", filename="a.bin").json()
    assert (restored["n_restored"], restored["n_read"]) == (saved["n_saved"], saved["n_written"])
    again, n_cached = asked(here)
    assert again == text
    assert n_cached > 100


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
def test_the_file_is_closed_to_others(here: Running, folder: Path) -> None:
    asked(here)
    act(here, "save", filename="b.bin")
    assert (folder / "b.bin").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in folder.iterdir()] == ["b.bin"]


@pytest.mark.parametrize(
    ("action", "slot", "name", "words"),
    [
        ("save", "0", "../x", "filename must be the name of a file"),
        ("save", "0", "", "filename must be the name of a file"),
        ("restore", "0", "none.bin", "is not a saved conversation, or it is damaged"),
        ("restore", "0", "other.bin", "is not a saved conversation, or it is damaged"),
        ("burn", "0", "x", "It must be save, restore or erase"),
        ("save", "9", "x", "Slots have the numbers 0 to 2"),
        ("save", "x", "x", "Slots have the numbers 0 to 2"),
    ],
)
def test_what_makes_no_sense_is_said(
    here: Running, folder: Path, action: str, slot: str, name: str, words: str
) -> None:
    (folder / "other.bin").write_bytes(b"PK\x03\x04 something else")
    reply = act(here, action, slot, filename=name)
    assert reply.status_code == 400
    assert words in reply.json()["error"]["message"]


def test_a_file_of_another_model_is_refused(here: Running, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked(here)
    assert act(here, "save", filename="c.bin").status_code == 200
    monkeypatch.setattr("runtime.engine.prompts.model_key", lambda loaded: "another")
    assert "saved with another model" in act(here, "restore", filename="c.bin").json()["error"]["message"]


def test_without_a_folder_it_says_how_to_name_one(here: Running) -> None:
    here.server.app.state.slot_folder = None
    reply = act(here, "save", filename="x")
    assert reply.status_code == 501
    assert "--slot-save-path" in reply.json()["error"]["message"]
