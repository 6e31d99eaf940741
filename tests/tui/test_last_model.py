"""The terminal chat starts with the model used last, and says why where it cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from app.chats.store import Store
from app.cli.main import app
from app.models import library, prospects
from app.models.starting import StartModel, start_model
from app.settings import default_path
from runtime.core.errors import ModelError, NoMemoryError, SettingsError
from runtime.models.registry import load_registry
from tests.support.scripted import ScriptedEngine
from tests.support.tui import ChatPilot, chats_path, opened, piloted, session_with

path = chats_path
DEMO = load_registry()["demo"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without models."""
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setattr(library, "cached", list)
    monkeypatch.setattr(library, "SYSTEM_WIDE", tmp_path / "no ollama")
    return tmp_path


@pytest.fixture
def settings_file() -> Iterator[Path]:
    file = default_path()
    file.parent.mkdir(parents=True, exist_ok=True)
    yield file
    file.unlink()


def placed(folder: Path, name: str = "mine.gguf") -> Path:
    """The bundled target under another name."""
    folder.mkdir(exist_ok=True)
    (folder / name).symlink_to(DEMO.target.absolute())
    return folder / name


def used(path: Path, *names: str) -> None:
    """These models were loaded before, the last one last."""
    store = Store(path)
    store.set_preference("recent models", "\n".join(reversed(names)))
    store.close()


def test_without_any_use_it_is_the_bundled_model(path: Path) -> None:
    assert start_model("", path) == StartModel(DEMO)
    path.mkdir()  # no file of chats at all
    assert start_model("", path) == StartModel(DEMO)


@piloted
async def test_the_model_that_was_loaded_last_is_the_next_starts(path: Path, home: Path) -> None:
    mine = placed(home / "elsewhere")
    async with opened(path, ScriptedEngine(), ScriptedEngine(), pair=DEMO) as chat:
        await chat.ask(f"/model {mine}")
        await chat.until("mine.gguf is ready")
    start = start_model("", path)
    assert (start.pair.target, start.pair.name, start.origin) == (mine, "mine.gguf", "The model used last")


def test_an_argument_is_before_the_settings_file_and_that_before_the_last_use(
    path: Path, home: Path, settings_file: Path
) -> None:
    mine, other = placed(home / "a"), placed(home / "b", "other.gguf")
    used(path, str(other))
    assert start_model("", path).pair.target == other
    settings_file.write_text(f'model = "{mine}"\n')
    assert start_model("", path).pair.target == mine
    assert start_model("demo", path) == StartModel(DEMO)


def test_a_server_that_was_used_last_is_asked_again_by_its_address(path: Path) -> None:
    for address in ("http://127.0.0.1:8012", "http://box:80/v1#small"):
        pair = start_model(address).pair
        session = session_with(path, pair=pair)
        session.take(pair)
        session.store.close()
        assert start_model("", path).pair == pair


@pytest.mark.parametrize("words", [("chat",), ("chat", "demo"), ("chat", "-m", "demo")])
def test_the_command_starts_with_it_unless_a_model_is_named(
    path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    started: list[StartModel] = []
    monkeypatch.setattr("app.cli.streams.is_terminal", lambda: True)
    monkeypatch.setattr("app.tui.app.run", lambda start, *more: started.append(start))
    used(path, str(placed(home / "a")))
    result = CliRunner().invoke(app, [*words, "--chats", str(path)])
    assert result.exit_code == 0, result.output
    assert started[0].pair.name == ("mine.gguf" if words == ("chat",) else "demo")


def test_a_setting_that_is_no_text_is_refused(settings_file: Path) -> None:
    from app.settings import read_settings

    settings_file.write_text("model = 4\n")
    with pytest.raises(SettingsError, match="'model' must be of type str, not int"):
        read_settings()


def said(chat: ChatPilot) -> str:
    """The text on the screen, where something is framed without the frame and what is beside it."""
    lines = [line.split("│")[1] if line.count("│") > 1 else line for line in chat.seen().splitlines()]
    return " ".join(" ".join(lines).split())


def starting(start: StartModel, loaded: object) -> Callable[..., object]:
    """What opens the first model, as the chat does: `loaded` is the engine, or what the loader raises."""

    def load(*given: object) -> Any:
        if isinstance(loaded, Exception):
            raise loaded
        return loaded

    return start.opening(load)


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        ("/media/stick/gone.gguf", "/media/stick/gone.gguf does not exist"),
        ("qwen3-4c", "There is no model 'qwen3-4c'"),
        ("qwen3-4b", "is not on this machine"),
    ],
)
@piloted
async def test_a_last_model_that_is_gone_is_said_and_the_list_opens(path: Path, last: str, reason: str) -> None:
    used(path, "demo", last)
    start = start_model("", path)
    first = starting(start, ModelError(reason))  # of a missing file; a missing name is known before
    async with opened(path, first, ScriptedEngine("Here."), pair=start.pair, wait=False) as chat:
        await chat.until("The model used last cannot be loaded:", "Load another model", "Used recently")
        assert reason in said(chat)
        await chat.press("escape")
        await chat.until("Slipstream · no model", "The model used last cannot be loaded:", "Ctrl+L chooses another")
        assert chat.session.recent == [last, "demo"]  # the disk may be back at the next start
        await chat.press("ctrl+l")
        await chat.until("Used recently", "demo")
        await chat.press("enter")
        await chat.until("Slipstream · demo", "demo is ready", gone="cannot be loaded")
        assert chat.session.recent[0] == "demo"


@piloted
async def test_a_last_model_that_is_too_large_now_is_said_and_the_list_opens(path: Path, home: Path) -> None:
    used(path, "demo", str(placed(home / "a")))
    start = start_model("", path)
    first = starting(start, NoMemoryError("mine.gguf needs 9 GB, and 2 GB are free."))
    async with opened(path, first, pair=start.pair, wait=False) as chat:
        await chat.until("The model used last cannot be loaded: mine.gguf needs 9 GB", "Load another model")


@piloted
async def test_a_model_of_the_settings_that_cannot_be_found_is_said_with_the_file(
    path: Path, settings_file: Path
) -> None:
    settings_file.write_text('model = "qwen3-4c"\n')
    used(path, "demo")
    start = start_model("", path)
    async with opened(path, starting(start, None), size=(200, 24), pair=start.pair, wait=False) as chat:
        await chat.until("Load another model")
        assert f"The model in {settings_file} cannot be loaded: There is no model 'qwen3-4c'. Did you" in said(chat)


@piloted
async def test_an_empty_chat_lists_what_was_used_before_what_can_be_fetched(path: Path, home: Path) -> None:
    used(path, str(home / "gone.gguf"), str(placed(home / "a")), "demo")
    async with opened(path, ScriptedEngine("demo's"), ScriptedEngine("mine's"), size=(100, 30), pair=DEMO) as chat:
        await chat.until("Other models that you have used", "mine.gguf, 22.5 MB", "All models", gone="fetch a model")
        assert "gone.gguf" not in chat.seen()
        await chat.press("shift+tab", "enter")
        await chat.until("mine.gguf is ready", "Other models that you have used", "Enter): demo, 24.4 MB")
        await chat.ask("Q")
        await chat.until("mine's")


@piloted
async def test_what_is_offered_to_fetch_does_not_depend_on_what_is_free_now(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prospects, "all_memory", lambda: 8_000_000_000)
    for free in (1_000_000_000, 7_000_000_000):
        monkeypatch.setattr(prospects, "free_memory", lambda free=free: free)
        async with opened(path, size=(100, 30), pair=DEMO) as chat:
            await chat.until("↓ phi-4-mini, 2.5 GB", "All models")
