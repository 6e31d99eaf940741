"""What was set for replies lasts, holds where it was said, and is seen."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.chats.store import Store
from app.cli.main import app
from app.tui.actions import chats
from app.tui.chat_settings import ChatSettings
from app.tui.session import Given
from runtime.core.errors import SettingsError
from runtime.engine import Message
from runtime.models.registry import Pair
from tests.support.scripted import ScriptedEngine
from tests.support.tui import chats_path, engine_of, opened, piloted

path = chats_path
PAIR = Pair("scripted", Path("none.gguf"), temperature=0.6)


@piloted
async def test_settings_stay_with_their_chat_and_out_of_others(path: Path) -> None:
    async with opened(path, ScriptedEngine("ok")) as chat:
        await chat.ask("/set temperature 0.5")
        await chat.ask("/system Be brief.")
        await chat.ask("Q")
        await chat.until("scripted · temperature 0.5 · system prompt · Q")
        await chat.ask("/new")
        await chat.until("new chat", gone="temperature 0.5")
        await chat.ask("R")
        turns, sampling, _ = engine_of(chat).asked[1]
        assert (turns, sampling.temperature) == ([Message("user", "R")], 0.0)
    async with opened(path, ScriptedEngine("ok")) as chat:
        await chat.press("ctrl+o")
        await chat.press("down", "enter")
        await chat.until("scripted · temperature 0.5 · system prompt · Q")
        await chat.ask("S")
        turns, sampling, _ = engine_of(chat).asked[0]
        assert (turns[0], sampling.temperature) == (Message("system", "Be brief."), 0.5)


@piloted
async def test_defaults_hold_in_every_chat_and_at_the_next_start(path: Path) -> None:
    async with opened(path, ScriptedEngine("ok")) as chat:
        await chat.ask("/set --default max_tokens 1")
        await chat.ask("/system --default Rhyme.")
        await chat.until("scripted · max_tokens 1 · system prompt · new chat")
    async with opened(path, ScriptedEngine("ok"), size=(100, 40)) as chat:
        await chat.until("scripted · max_tokens 1 · system prompt · new chat")
        await chat.ask("Q")
        turns, _, max_tokens = engine_of(chat).asked[0]
        assert (turns[0], max_tokens) == (Message("system", "Rhyme."), 1)
        await chat.ask("/set max_tokens none")
        await chat.until("scripted · system prompt · Q")
        await chat.ask("/set max_tokens default")
        await chat.until("scripted · max_tokens 1 · system prompt · Q")
        await chat.say("/settings")
        await chat.until("max_tokens 1 all chats", "temperature 0.0 the model", "Rhyme. all chats")


@piloted
async def test_a_default_prevails_in_the_chat_in_which_it_is_said(path: Path) -> None:
    async with opened(path, ScriptedEngine("ok")) as chat:
        await chat.ask("/set temperature 0.5")
        await chat.ask("/set --default temperature 0.7")
        await chat.until("temperature 0.7")
        await chat.ask("/set --default temperature default")
        await chat.until("new chat", gone="temperature 0")


@piloted
async def test_the_command_line_tells_new_chats_alone_and_they_remember_it(path: Path) -> None:
    store = Store(path)
    old = store.new_chat("Old")
    store.close()
    async with opened(path, ScriptedEngine("ok"), given={"temperature": 0.3, "seed": 7}) as chat:
        await chat.until("temperature 0.3 · seed 7 · new chat")
        await chat.ask("Q")
        await chats.open_chat(chat.screen, old)
        await chat.until("Old", gone="seed 7")
        await chat.ask("/new")
        await chat.until("temperature 0.3 · seed 7 · new chat")
        await chat.ask("/set --default temperature 0.9")
        await chat.until("temperature 0.9 · seed 7 · new chat")
    async with opened(path, ScriptedEngine("ok")) as chat:
        await chats.open_chat(chat.screen, old + 1)
        await chat.until("temperature 0.3 · seed 7 · Q")


@piloted
async def test_each_value_is_listed_with_its_source_and_can_be_changed_there(path: Path) -> None:
    async with opened(path, ScriptedEngine("ok")) as chat:
        await chat.ask("/set --default top_p 0.9")
        await chat.ask("/set min_p 0.1")
        await chat.say("/settings")
        await chat.until(
            "system prompt none",
            "context 256",
            "temperature 0.0 the model",
            "top_k 40 Slipstream's default",
            "top_p 0.9 all chats",
            "min_p 0.1 this chat",
        )
        await chat.type("top_k")
        await chat.press("enter")
        await chat.until("How many of the most likely tokens can be taken", "default restores 40")
        await chat.type("7")
        await chat.press("enter")
        await chat.until("top_k 7 this chat", "min_p 0.1 this chat")
        await chat.type("top_k")
        await chat.press("enter")
        await chat.type("default")
        await chat.press("enter")
        await chat.until("top_k 40 Slipstream's default")


@piloted
async def test_a_value_that_is_refused_stays_in_its_dialog_with_the_reason(path: Path) -> None:
    async with opened(path, ScriptedEngine("ok")) as chat:
        await chat.say("/settings")
        for name, text, reason in (
            ("top_p", "7", "top_p is 7.0: it must be above 0 and at most 1"),
            ("context", "few", "'few' is not a number of tokens"),
        ):
            await chat.type(name)
            await chat.press("enter")
            await chat.type(text)
            await chat.press("enter")
            await chat.until(reason, f"│ {text} ")
            await chat.press("escape")
            await chat.until("Settings: scripted in this chat", gone=reason)
        assert chat.screen.branch.settings == {}


@piloted
async def test_it_is_asked_whether_an_unusual_value_is_meant(path: Path) -> None:
    async with opened(path, ScriptedEngine("ok")) as chat:
        await chat.say("/set temperature 5")
        await chat.until("Is that meant?", "temperature 5 is unusual: from 0 to 2")
        await chat.press("escape")
        await chat.until("scripted · new chat", gone="Is that meant?")
        await chat.say("/set --default temperature 5")
        await chat.press("enter")
        await chat.until("scripted · temperature 5.0 · new chat")
        await chat.say("/settings")
        await chat.type("frequency")
        await chat.press("enter")
        await chat.type("9")
        await chat.press("enter")
        await chat.until("frequency_penalty 9 is unusual: from -2 to 2")
        await chat.press("escape")
        await chat.until("│ 9 ", "Enter accepts", gone="Is that meant?")
        await chat.press("enter", "enter")
        await chat.until("frequency_penalty 9.0 this chat")


@piloted
async def test_the_system_prompt_is_changed_in_the_list_and_a_long_one_is_read_below_it(path: Path) -> None:
    async with opened(path, ScriptedEngine("ok")) as chat:
        await chat.ask("/settings")
        await chat.type("system")
        await chat.press("enter")
        await chat.paste("Answer in one sentence and name the module.")
        await chat.press("enter")
        await chat.until("Answer in one sentence… this chat", "Answer in one sentence and name the module.")
        await chat.press("escape")
        await chat.ask("Q")
        assert engine_of(chat).asked[0][0][0] == Message("system", "Answer in one sentence and name the module.")


def test_a_value_that_the_registry_names_is_the_models_even_if_it_is_the_default(path: Path) -> None:
    store = Store(path)
    settings = ChatSettings(store)
    pair = Pair("named", Path("none.gguf"), temperature=0.6, named=("top_p",))
    told = {name: settings.source(name, pair, {}) for name in ("temperature", "top_p", "top_k")}
    assert told == {
        "temperature": (0.6, "the model"),
        "top_p": (0.95, "the model"),
        "top_k": (40, "Slipstream's default"),
    }
    store.close()


def test_a_system_prompt_of_the_command_line_holds_until_another_is_for_all(path: Path) -> None:
    store = Store(path)
    settings = ChatSettings(store, given_system="Given.")
    assert settings.system == "Given."
    settings.keep_system("Kept.")
    assert settings.system == ChatSettings(store).system == "Kept."
    store.close()


@pytest.mark.parametrize(
    ("argument", "sentence"),
    [
        ("--default", "/set --default temperature 0.7"),
        ("seed", "/set seed 7"),
        ("when_full", "/set when_full leave-out"),
    ],
)
def test_a_setting_without_its_value_is_told_how(path: Path, argument: str, sentence: str) -> None:
    store = Store(path)
    with pytest.raises(SettingsError, match=sentence):
        ChatSettings(store).change(argument, PAIR, {})
    store.close()


@pytest.mark.parametrize("argument", ["temperature -1", "--default top_p 7", "max_tokens 0", "top_k none", "seed x"])
def test_what_makes_no_sense_is_refused_and_changes_nothing(path: Path, argument: str) -> None:
    store = Store(path)
    settings = ChatSettings(store)
    before = settings.values(PAIR, {})
    with pytest.raises(SettingsError):
        settings.change(argument, PAIR, {})
    assert settings.values(PAIR, {}) == before
    store.close()


def test_what_is_damaged_or_of_another_version_is_left_out(path: Path) -> None:
    store = Store(path)
    partly = '{"temperature": 0.2, "warmth": 1}', {"temperature": 0.2}
    for kept, left in (("{", {}), ("[" * 100_000, {}), ("3", {}), partly):
        store.set_preference("settings", kept)
        assert ChatSettings(store).for_all == left
    store.close()


def test_a_chat_that_is_deleted_takes_its_settings_along(path: Path) -> None:
    store = Store(path)
    chat = store.new_chat("Q")
    store.set_settings(chat, {"seed": 1})
    store.delete(chat)
    assert store.settings(chat) == {}
    store.close()


def test_the_command_line_tells_a_chat_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[object, ...]] = []
    monkeypatch.setattr("app.cli.streams.is_terminal", lambda: True)
    monkeypatch.setattr("app.tui.app.run", lambda *given: told.append(given))
    result = CliRunner().invoke(app, ["chat", "--system", "Rhyme.", "--temperature", "0.3", "--seed", "7"])
    assert result.exit_code == 0
    assert told[0][-1] == Given({"temperature": 0.3, "seed": 7}, "Rhyme.")
    refused = CliRunner().invoke(app, ["chat", "--temperature", "-1"])
    assert isinstance(refused.exception, SettingsError)
    assert len(told) == 1
