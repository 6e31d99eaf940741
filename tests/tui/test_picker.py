"""The list of models in the terminal chat, and what a chat offers where there is none but the bundled pair."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.models import library, prospects
from app.tui.dialogs import model_picker
from runtime.loading import profile_cache
from runtime.loading.profile_cache import ProfileCache
from runtime.models.registry import Pair, load_registry
from tests.support.scripted import ScriptedEngine
from tests.support.tui import chats_path, engine_of, opened, piloted

path = chats_path
DEMO = load_registry()["demo"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without models, on a machine of known memory."""
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setattr(library, "cached", list)
    monkeypatch.setattr(library, "unfinished", list)
    monkeypatch.setattr(library, "SYSTEM_WIDE", tmp_path / "no ollama")
    monkeypatch.setattr(model_picker, "free_memory", lambda: 8_000_000_000)
    monkeypatch.setattr(prospects, "all_memory", lambda: 8_000_000_000)
    monkeypatch.setattr(profile_cache, "memo", lambda: ProfileCache("speeds", tmp_path))
    monkeypatch.setattr(prospects, "bandwidth_memo", lambda: ProfileCache("bandwidth", tmp_path))
    monkeypatch.setattr(prospects, "this_machine", lambda: prospects.Machine(50e9))
    return tmp_path


def placed(folder: Path, name: str) -> Path:
    """The bundled target under another name."""
    folder.mkdir(exist_ok=True)
    (folder / name).symlink_to(DEMO.target.absolute())
    return folder / name


@piloted
async def test_ctrl_m_opens_the_list_where_a_terminal_tells_it_from_enter(path: Path) -> None:
    async with opened(path) as chat:
        await chat.ask("Q")
        await chat.until("Hello.")
        await chat.press("ctrl+m")
        await chat.until("Load another model")


@piloted
async def test_every_model_is_listed_with_what_it_would_be_like_here(path: Path) -> None:
    async with opened(path, size=(110, 60), pair=DEMO) as chat:
        await chat.say("/model")
        await chat.until("Used recently", "▸ demo 24.4 MB fits draft")
        await chat.until("↓ qwen3-4b 3.14 GB fits ~ 16 tok/s draft")
        await chat.type("70b")
        await chat.until("↓ llama-3.3-70b 43.84 GB too large")
        await chat.press("ctrl+u")
        await chat.type("coder 32")
        await chat.until("qwen2.5-coder-32b-instruct", "Qwen 2.5 Coder 32B Instruct, Q4_K_M", gone="qwen3-4b")


@piloted
async def test_a_file_is_found_loaded_and_remembered(path: Path, home: Path) -> None:
    # a copy: the bundled file itself is listed as the pair that it belongs to
    mine = home / "models" / "mine.gguf"
    mine.parent.mkdir()
    mine.write_bytes(DEMO.target.read_bytes())
    async with opened(path, ScriptedEngine("one"), ScriptedEngine("two")) as chat:
        await chat.press("ctrl+l")
        await chat.until("On this machine", "mine.gguf", "fits")
        await chat.type("mine")
        await chat.until("mine.gguf", gone="qwen3-4b")
        await chat.press("enter")
        await chat.until("Slipstream · mine.gguf", "mine.gguf is ready")
        assert chat.session.recent[0] == str(mine)
        await chat.press("ctrl+l")
        await chat.until("Used recently", "▸ mine.gguf")


@piloted
async def test_a_path_is_typed_with_completion_and_folders_are_gone_into(path: Path, home: Path) -> None:
    placed(home / "weights", "first.gguf")
    placed(home / "weights", "second.gguf")
    async with opened(path, ScriptedEngine("one"), ScriptedEngine("two")) as chat:
        await chat.press("ctrl+l")
        await chat.until("To fetch")
        await chat.paste(f"{home}/wei")
        await chat.press("tab")
        await chat.until("first.gguf", "second.gguf")
        await chat.press("down", "enter")
        await chat.until("second.gguf is ready")


@piloted
async def test_what_is_no_model_is_refused_in_the_list(path: Path) -> None:
    async with opened(path) as chat:
        await chat.press("ctrl+l")
        await chat.until("To fetch")
        await chat.type("nonsense")
        await chat.until("No model has this name")
        await chat.press("enter")
        await chat.until("There is no model 'nonsense'")
        await chat.press("escape")
        await chat.until("scripted is ready")


@piloted
async def test_a_path_that_is_no_model_stays_in_the_field_with_the_reason(path: Path, home: Path) -> None:
    (home / "text.gguf").write_text("a text")
    async with opened(path) as chat:
        await chat.press("ctrl+l")
        await chat.until("To fetch")
        for name, reason in (("gone.gguf", "does not exist"), ("text.gguf", "text.gguf is not a GGUF file")):
            await chat.press("ctrl+u")
            await chat.paste(f"./{name}")
            await chat.press("enter")
            await chat.until("Load another model", f"│ ./{name}", reason)
        await chat.press("escape")
        await chat.until("scripted is ready", gone="is not a GGUF file")


@piloted
async def test_a_file_that_does_not_fit_into_memory_stays_in_the_field_with_the_reason(
    path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed(home / "weights", "large.gguf")
    monkeypatch.setattr(prospects, "free_memory", lambda: 9_000_000)
    async with opened(path, first := ScriptedEngine("still")) as chat:
        for opening in ("/model", "/compare"):
            await chat.ask("Q")
            await chat.say(opening)
            await chat.until("To fetch")
            await chat.paste("./weights/large.gguf")
            await chat.press("enter")
            await chat.until("│ ./weights/large.gguf", "large.gguf needs", "8 MiB are free. Close other programs")
            await chat.press("escape")
            await chat.until("still", gone="Close other programs")
        assert not first.closed


@piloted
async def test_an_earlier_estimate_is_shown_while_the_machine_is_busy(path: Path) -> None:
    prospects.bandwidth_memo().write({"bytes_per_second": 25e9})
    async with opened(path, ScriptedEngine("[wait]a"), size=(110, 60)) as chat:
        await chat.say("Q")
        await chat.press("ctrl+l")
        await chat.until("↓ qwen3-4b 3.14 GB fits ~ 8.0 tok/s draft")
        engine_of(chat).go.set()


@piloted
async def test_what_is_downloaded_first_is_marked_and_comes_last_where_a_name_is_typed(path: Path, home: Path) -> None:
    mine = placed(home / "elsewhere", "qwen-mine.gguf")
    async with opened(path, *(ScriptedEngine() for _ in range(2)), size=(100, 30)) as chat:
        await chat.ask(f"/model {mine}")
        await chat.type("/compare ")
        await chat.until("demo The bundled pair", "↓ Llama 3.2 3B Instruct", gone="qwen-mine.gguf /")
        await chat.press("ctrl+u")
        await chat.type("/model qwen")
        await chat.until("qwen-mine.gguf /")
        lines = chat.seen().splitlines()
        at = [next(i for i, line in enumerate(lines) if word in line) for word in ("qwen-mine.gguf  ", "qwen2.5-7b  ")]
        assert at == sorted(at)


@piloted
async def test_with_nothing_but_the_bundled_pair_the_chat_offers_questions_and_models(path: Path) -> None:
    async with opened(path, ScriptedEngine("An answer."), size=(100, 30), pair=DEMO) as chat:
        await chat.until("What is collections.deque?", "↓ phi-4-mini, 2.5 GB", "All models")
        await chat.press("shift+tab", "down", "enter")
        await chat.until("An answer.")
        assert engine_of(chat).asked[0][0][-1].content == "What is collections.deque?"
        await chat.press("ctrl+n")
        await chat.until("All models")
        await chat.press("shift+tab", "end", "enter")
        await chat.until("Load another model")


@piloted
async def test_with_another_model_here_it_offers_none(path: Path, home: Path) -> None:
    (home / "models").mkdir()
    (home / "models" / "mine.gguf").write_bytes(DEMO.target.read_bytes())
    async with opened(path, pair=DEMO) as chat:
        await chat.screen.workers.wait_for_complete()
        await chat.until("Ask something", gone="All models")


@piloted
async def test_another_model_is_not_said_to_know_python_alone(path: Path, home: Path) -> None:
    placed(home / "elsewhere", "mine.gguf")
    async with opened(path, ScriptedEngine(), ScriptedEngine(), pair=DEMO) as chat:
        await chat.until("knows only Python's standard library")
        await chat.ask(f"/model {home / 'elsewhere' / 'mine.gguf'}")
        await chat.until("mine.gguf is ready", "Ask something", gone="Python's standard library")


@piloted
async def test_a_recently_used_file_is_loaded_by_its_name(path: Path, home: Path) -> None:
    elsewhere = placed(home / "elsewhere", "mine.gguf")
    async with opened(path, *(ScriptedEngine() for _ in range(4))) as chat:
        for wanted in (str(elsewhere), "mine.gguf", "mine"):
            await chat.ask(f"/model {wanted}")
            await chat.until("Slipstream · mine.gguf", "mine.gguf is ready")
            assert chat.session.pair.target == elsewhere
        await chat.type("/model mine")
        await chat.until("mine.gguf")
        await chat.press("tab")
        assert chat.screen.prompt.text == "/model mine.gguf"


@piloted
async def test_a_recently_used_file_is_found_in_the_list_by_its_name(path: Path, home: Path) -> None:
    async with opened(path, *(ScriptedEngine() for _ in range(3))) as chat:
        await chat.ask(f"/model {DEMO.target.absolute()}")  # which is listed as the pair that it belongs to
        await chat.until(f"{DEMO.target.name} is ready")
        await chat.press("ctrl+l")
        await chat.until("To fetch")
        await chat.type(DEMO.target.name)
        await chat.until("Used recently", "demo", gone="No model has this name")


def test_a_pair_of_the_registry_is_remembered_by_its_name_and_a_file_by_its_path(path: Path) -> None:
    from tests.support.tui import session_with

    session = session_with(path)
    for each in (DEMO, Pair("x.gguf", Path("/tmp/x.gguf"), context=0), DEMO):
        session.take(each)
    assert session.recent == ["demo", "/tmp/x.gguf"]
    session.store.close()
