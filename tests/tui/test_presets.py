"""Presets: a model, a system prompt and settings under one name, saved, listed, used and removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.chats.store import Store
from app.tui.presets import Preset, Presets
from runtime.core.errors import SettingsError
from runtime.engine import Message
from runtime.models.registry import load_registry
from tests.support.scripted import ScriptedEngine
from tests.support.tui import ChatPilot, chats_path, engine_of, opened, piloted

path = chats_path
DEMO = load_registry()["demo"]


async def save(chat: ChatPilot) -> None:
    """Saves a preset of the demo pair."""
    await chat.ask("/set temperature 0.2")
    await chat.ask("/system Be brief.")
    await chat.ask("/preset save brief")
    await chat.until("Saved: demo · temperature 0.2 · system prompt. /preset brief uses it.")


@piloted
async def test_a_preset_brings_model_system_prompt_and_settings_into_another_chat_after_a_restart(path: Path) -> None:
    async with opened(path, ScriptedEngine("one"), pair=DEMO) as chat:
        await save(chat)
    async with opened(path, ScriptedEngine("two"), ScriptedEngine("three")) as chat:
        await chat.ask("/set seed 7")
        await chat.until("scripted · seed 7 · new chat")
        await chat.ask("/preset brief")
        await chat.until("Slipstream · demo · temperature 0.2 · system prompt · new chat", gone="seed 7")
        await chat.ask("Q")
        turns, sampling, _ = engine_of(chat).asked[0]
        assert turns == [Message("system", "Be brief."), Message("user", "Q")]
        assert (sampling.temperature, sampling.seed) == (0.2, None)
        await chat.until("three")


@piloted
async def test_a_preset_of_the_loaded_model_loads_nothing(path: Path) -> None:
    async with opened(path, ScriptedEngine("one"), pair=DEMO) as chat:
        await save(chat)
        await chat.press("ctrl+n")
        await chat.until("new chat", gone="temperature 0.2 · system prompt · new chat")
        await chat.ask("/preset brief")
        await chat.until("demo · temperature 0.2 · system prompt · new chat")
        await chat.ask("Q")
        await chat.until("one")


@piloted
async def test_presets_are_a_section_of_the_list_of_models(path: Path) -> None:
    async with opened(path, ScriptedEngine("one"), pair=DEMO) as chat:
        await chat.press("ctrl+l")
        await chat.until("To fetch", gone="Presets")
        await chat.press("escape")
        await save(chat)
        await chat.press("ctrl+n", "ctrl+l")
        await chat.until("Presets", "brief demo · temperature 0.2 · system prompt")
        await chat.type("brief")
        await chat.until("Presets", gone="To fetch")
        await chat.press("enter")
        await chat.until("demo · temperature 0.2 · system prompt · new chat")
        await chat.say("/compare")
        await chat.until("There is no question yet")


@piloted
async def test_presets_are_listed_picked_completed_and_removed(path: Path) -> None:
    async with opened(path, ScriptedEngine("one"), pair=DEMO) as chat:
        await chat.ask("/preset")
        await chat.until("There is no preset yet. /preset save brief saves")
        await save(chat)
        await chat.press("ctrl+n")
        await chat.ask("/preset")
        await chat.until("brief: demo · temperature 0.2 · system prompt")
        await chat.press("enter")
        await chat.until("demo · temperature 0.2 · system prompt · new chat")
        await chat.type("/preset remove b")
        await chat.press("tab", "enter")
        await chat.until("The preset brief is removed.")
        await chat.ask("/preset brief")
        await chat.until("There is no preset 'brief'.")


@piloted
async def test_a_preset_whose_model_is_gone_is_a_sentence_and_changes_nothing(path: Path) -> None:
    async with opened(path, ScriptedEngine("one"), pair=DEMO) as chat:
        presets = Presets(chat.session.store)
        for name, model in (("file", "/nowhere/mine.gguf"), ("pair", "removed-from-models-toml"), ("hub", "qwen3-4b")):
            presets.save(name, Preset(model, "Rhyme.", {"seed": 1}))
            chat.app.clear_notifications()
            await chat.ask(f"/preset {name}")
            await chat.until(f"The model of the preset {name}, {model}, is not on")
            await chat.until("Slipstream · demo · new chat")


@pytest.mark.parametrize("name", ["", "two words", "save", "a/b", "x" * 41])
def test_a_name_that_cannot_be_typed_is_refused(path: Path, name: str) -> None:
    store = Store(path)
    with pytest.raises(SettingsError, match="/preset save brief"):
        Presets(store).save(name, Preset("demo"))
    store.close()


def test_what_is_damaged_or_of_another_version_is_left_out(path: Path) -> None:
    store = Store(path)
    store.set_preference("presets", '{"a": {"model": "demo", "settings": {"seed": 1, "warmth": 2}}, "b": 3}')
    assert Presets(store).all() == {"a": Preset("demo", "", {"seed": 1})}
    for kept in ("{", '{"a": ' + "[" * 100_000):
        store.set_preference("presets", kept)
        assert Presets(store).all() == {}
    with pytest.raises(SettingsError, match="There is no preset 'a'"):
        Presets(store).remove("a")
    store.close()
