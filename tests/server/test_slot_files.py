"""llama.cpp's `POST /slots/{id}`: a conversation is saved, erased and restored, and not read again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest

from runtime.core.errors import SettingsError
from runtime.engine.kept_prompts import FORM, read
from tests.engine.test_prefixes import PROMPT
from tests.support.serving import Running, running, shared

ASKED = {"prompt": PROMPT, "n_predict": 8, "temperature": 0, "seed": 1}


@pytest.fixture(scope="module")
def here() -> Iterator[Running]:
    with running(shared(n_ctx=1024, slots=3)) as here:
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
        ("erase", "\u0660", "", "Slots have the numbers 0 to 2"),
    ],
)
def test_what_makes_no_sense_is_said(
    here: Running, folder: Path, action: str, slot: str, name: str, words: str
) -> None:
    (folder / "other.bin").write_bytes(b"PK\x03\x04 something else")
    reply = act(here, action, slot, filename=name)
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert words in error["message"]
    assert error["param"] in ("filename", "action", "id_slot")
    assert str(folder) not in reply.text


TOKENS, STATE = np.arange(100, dtype=np.int32), np.zeros(100, np.uint8)
SAVED: dict[str, Any] = {
    "form": FORM, "model": "m", "n_asked": 100, "cuts": True, "n_exact": 100, "tokens": TOKENS, "state": STATE
}  # fmt: skip
WRONG: list[dict[str, Any]] = [
    {"n_asked": -5}, {"n_asked": "x"}, {"n_asked": TOKENS}, {"n_exact": 101}, {"n_exact": -1}, {"tokens": STATE},
    {"tokens": TOKENS.astype(np.float64)}, {"tokens": TOKENS.reshape(10, 10)}, {"tokens": TOKENS - 50},
    {"tokens": TOKENS[:0]}, {"tokens": np.int32(5)}, {"state": TOKENS}, {"state": STATE.reshape(10, 10)},
    {"state": np.array(["x"])}, {"point_x": STATE}, {"point_101": STATE}, {"point_9": TOKENS}, {"form": TOKENS},
]  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_a_saved_conversation_of_another_form_is_refused(wrong: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    with path.open("wb") as file:
        np.savez(file, **SAVED)
    assert len(read(path, "m", 1).tokens) == 100
    with path.open("wb") as file:
        np.savez(file, **SAVED | wrong)
    with pytest.raises(SettingsError, match=r"damaged|another model"):
        read(path, "m", 1)


@pytest.mark.parametrize("damage", ["empty", "cut", "changed", "oversized", "pipe", "device", "folder"])
def test_what_is_no_saved_conversation_is_refused(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    with path.open("wb") as file:
        np.savez(file, **SAVED)
    data = path.read_bytes()
    path.unlink()
    if damage == "pipe":
        os.mkfifo(path)
    elif damage == "device":
        path.symlink_to("/dev/zero")
    elif damage == "folder":
        path.mkdir()
    elif damage == "oversized":
        with path.open("wb") as file:
            np.savez_compressed(file, **SAVED | {"state": np.zeros(2**26, np.uint8)})
    else:
        path.write_bytes(
            {"empty": b"", "cut": data[: len(data) // 2], "changed": data.replace(bytes(50), b"x" * 50)}[damage]
        )
    with pytest.raises(SettingsError, match="damaged"):
        read(path, "m", 1)


@pytest.mark.parametrize("kind", ["model", "link", "nowhere"])
def test_no_other_file_is_overwritten(
    here: Running, folder: Path, tmp_path_factory: pytest.TempPathFactory, kind: str
) -> None:
    asked(here)
    other = tmp_path_factory.mktemp("other") / "x"
    path = folder / "model.gguf"
    if kind == "model":
        path.write_bytes(b"GGUF")
    else:
        path.symlink_to(other)
    if kind == "link":
        other.write_bytes(b"mine")
    refused = act(here, "save", filename=path.name)
    assert refused.status_code == 400
    assert "is no saved conversation. Save elsewhere." in refused.json()["error"]["message"]
    assert [each.name for each in folder.iterdir()] == [path.name]
    assert kind != "link" or other.read_bytes() == b"mine"
    assert not (kind == "nowhere" and other.exists())


def test_a_file_of_another_model_is_refused(here: Running, folder: Path) -> None:
    asked(here)
    assert act(here, "save", filename="c.bin").status_code == 200
    with np.load(folder / "c.bin") as file:
        changed = {**file, "model": "another"}
    with (folder / "c.bin").open("wb") as other:
        np.savez(other, **changed)
    assert "saved with another model" in act(here, "restore", filename="c.bin").json()["error"]["message"]


def test_without_a_folder_it_says_so(here: Running) -> None:
    here.server.app.state.slot_folder = None
    reply = act(here, "save", filename="x")
    assert reply.status_code == 501
    assert "without a folder" in reply.json()["error"]["message"]
