"""Templates, and models fetched from inside the chat, by what is seen; the hub is a small one of our own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from app.tui.widgets.prompt import PromptBox
from runtime.engine import Message
from runtime.models.hub import fetch
from runtime.models.hub.fetch import Hub
from tests.support.hub_server import Behaviour, serving
from tests.support.scripted import ScriptedEngine
from tests.support.tui import engine_of, opened, piloted

NAME, FILE = "owner/tiny-GGUF", "tiny-Q4_K_M.gguf"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "chats.db"


@pytest.fixture
def how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Behaviour]:
    """The hub that the chat asks, and a cache of the test."""
    behaviour = Behaviour({f"{NAME}/{FILE}": bytes(1_000_000)})
    with serving(behaviour) as endpoint:
        hub = Hub(endpoint, tmp_path / "cache")
        monkeypatch.setattr(fetch, "Hub", lambda: hub)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(hub.cache))
        monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 4096)
        yield behaviour


@piloted
async def test_a_model_is_fetched_with_progress_paused_by_esc_and_goes_on(path: Path, how: Behaviour) -> None:
    how.drip = 0.2
    async with opened(path) as chat:
        await chat.say(f"/pull {NAME}")
        await chat.until(f"Fetching {FILE}", "%")
        await chat.say("/pull other/one")
        await chat.until("is being fetched already")
        await chat.ask("Q")
        await chat.until("Hello.")
        await chat.press("escape")
        await chat.until("Paused.", gone=f"Fetching {FILE}")
        assert any((path.parent / "cache").rglob("*.incomplete"))
        how.drip = 0
        await chat.say(f"/pull {NAME}")
        await chat.until("is here.", gone=f"Fetching {FILE}")
        assert len(how.ranges) == 1


@piloted
async def test_a_paused_download_is_marked_in_the_list_where_enter_goes_on_with_it(
    path: Path, how: Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "home", lambda: path.parent)
    how.drip = 0.2
    async with opened(path, ScriptedEngine("old"), ScriptedEngine("new")) as chat:
        await chat.say(f"/pull {NAME}")
        await chat.until(f"Fetching {FILE}", "%")
        await chat.press("escape")
        await chat.until("Paused. Enter in the list of models (Ctrl+L)")
        how.drip = 0
        await chat.press("ctrl+l")
        await chat.until("To fetch")
        await chat.type("tiny")
        await chat.until(f"↓ {FILE}", "% fetched", "of 1.0 MB is here. Enter fetches the rest and loads it.")
        await chat.press("enter")
        await chat.until(f"Slipstream · {FILE}", "is ready")
        assert len(how.ranges) == 1


@piloted
async def test_a_model_that_is_not_here_is_fetched_and_loaded(path: Path, how: Behaviour) -> None:
    async with opened(path, ScriptedEngine("old"), ScriptedEngine("From the new one.")) as chat:
        await chat.say(f"/model hf:{NAME}:{FILE}")
        await chat.until(f"Slipstream · {FILE}", "is ready")
        await chat.ask("Q")
        await chat.until("From the new one.")


@piloted
async def test_what_the_hub_refuses_is_one_sentence(path: Path, how: Behaviour) -> None:
    async with opened(path) as chat:
        await chat.say("/pull owner/nothing")
        await chat.until("owner/nothing", gone="Fetching")
        assert "Traceback" not in chat.seen()
        assert chat.session.log[-1].endswith(".")
        await chat.say("/pull")
        await chat.until("Name what to fetch")


@piloted
async def test_a_template_is_kept_begun_with_told_and_removed(path: Path) -> None:
    async with opened(path) as chat:
        box = chat.app.screen.query_one("#prompt", PromptBox)
        await chat.say("/template")
        await chat.until("There is no template yet.", gone="Begin with")
        await chat.say("/template review Review this code:\nbe strict.")
        await chat.until("Saved.")
        await chat.say("/template review")
        await chat.pilot.pause()
        assert box.text == "Review this code:\nbe strict."
        box.begin()
        await chat.ask("/template")
        await chat.until("review: Review this code: be strict.")
        await chat.press("enter")
        assert box.text == "Review this code:\nbe strict."
        box.begin()
        await chat.ask("/system @review")
        await chat.ask("Q")
        assert engine_of(chat).asked[0][0][0] == Message("system", "Review this code:\nbe strict.")
        await chat.say("/template reviw")
        await chat.until("'review'?")
        await chat.say("/template ../evil x")
        await chat.until("cannot name")
        await chat.ask("/template review none")
        await chat.say("/template review")
        await chat.until("There is no")
