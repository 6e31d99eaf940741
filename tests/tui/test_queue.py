"""Messages that are written while a reply comes wait for it, and can be taken back."""

from __future__ import annotations

import json
import os
from pathlib import Path

import psutil

from app.chats.store import Store
from app.tui.between_replies import UNSENT
from runtime.core.errors import ModelError
from tests.support.scripted import ScriptedEngine
from tests.support.tui import chats_path, engine_of, opened, piloted

path = chats_path


def asked(engine: ScriptedEngine) -> list[str]:
    return [turns[-1].content for turns, _, _ in engine.asked]


@piloted
async def test_what_is_written_while_a_reply_comes_is_shown_and_sent_in_order(path: Path) -> None:
    async with opened(path, ScriptedEngine("first [wait]end", "second", "third")) as chat:
        await chat.say("A")
        await chat.until("first")
        await chat.say("B is next")
        await chat.say("C is last")
        await chat.until("▸ B is next", "▸ C is last", "Esc takes back all")
        assert asked(engine_of(chat)) == ["A"]
        engine_of(chat).go.set()
        await chat.until("first end", "second", "third", gone="▸")
        assert asked(engine_of(chat)) == ["A", "B is next", "C is last"]


@piloted
async def test_up_changes_the_last_one_and_esc_takes_all_back_before_it_stops_the_reply(path: Path) -> None:
    async with opened(path, ScriptedEngine("first [wait]end", "ok")) as chat:
        await chat.say("A")
        await chat.until("first")
        await chat.say("B")
        await chat.say("C")
        await chat.press("up")
        await chat.until("▸ B", gone="▸ C")
        assert chat.screen.prompt.text == "C"
        await chat.press("2", "enter")
        await chat.until("▸ B", "▸ C2")
        await chat.type("mine")
        await chat.press("escape")
        await chat.until("mine", gone="▸")
        assert chat.screen.prompt.text == "B\n\nC2\n\nmine"
        assert chat.screen.host.is_replying
        await chat.press("escape")
        await chat.idle()
        await chat.until("stopped")
        assert asked(engine_of(chat)) == ["A"]


@piloted
async def test_what_waits_comes_along_to_no_other_chat(path: Path) -> None:
    async with opened(path, ScriptedEngine("first [wait]end", "ok")) as chat:
        await chat.say("A")
        await chat.until("first")
        await chat.say("B")
        await chat.press("ctrl+n")
        await chat.idle()
        await chat.until("new chat", gone="▸")
        assert chat.screen.prompt.text == "B"
        assert asked(engine_of(chat)) == ["A"]


@piloted
async def test_a_bad_attachment_is_refused_at_once_and_not_when_its_turn_comes(path: Path) -> None:
    Path("bad.bin").write_bytes(b"\xff\xfe\x00")
    async with opened(path, ScriptedEngine("first [wait]end")) as chat:
        await chat.say("A")
        await chat.until("first")
        await chat.say("See @bad.bin")
        await chat.until("is not UTF-8 text", gone="▸")
        assert chat.screen.prompt.text == "See @bad.bin"


@piloted
async def test_what_waits_comes_back_where_the_reply_before_it_fails(path: Path) -> None:
    async with opened(path, ScriptedEngine("first [wait]then [fail]", "ok")) as chat:
        await chat.say("A")
        await chat.until("first")
        await chat.say("B")
        await chat.say("C")
        engine_of(chat).go.set()
        await chat.until("broken off", "x.gguf does not answer.", gone="▸")
        assert chat.screen.prompt.text == "B\n\nC"
        assert asked(engine_of(chat)) == ["A"]


@piloted
async def test_questions_wait_for_a_model_and_come_back_where_none_comes(path: Path) -> None:
    def fail(*of: object) -> ScriptedEngine:
        engine.go.wait(10)
        raise ModelError("x.gguf is damaged.")

    engine = ScriptedEngine()
    async with opened(path, fail, wait=False) as chat:
        await chat.say("A")
        await chat.say("B")
        await chat.until("▸ B")
        engine.go.set()
        await chat.until("x.gguf is damaged.", gone="▸")
        assert chat.screen.prompt.text == "B"


@piloted
async def test_what_waits_and_what_is_being_written_are_there_at_the_next_start(path: Path) -> None:
    async with opened(path, ScriptedEngine("first [wait]end")) as chat:
        await chat.say("A")
        await chat.until("first")
        await chat.say("B")
        await chat.say("C")
        await chat.type("mine")
    async with opened(path, ScriptedEngine("ok")) as chat:
        assert chat.screen.prompt.text == "B\n\nC\n\nmine"
        await chat.press("enter")
        await chat.idle()
        assert asked(engine_of(chat)) == ["B\n\nC\n\nmine"]
    async with opened(path, ScriptedEngine("ok")) as chat:
        assert chat.screen.prompt.text == ""


@piloted
async def test_what_another_window_has_not_sent_stays_there(path: Path) -> None:
    store = Store(path)
    other = psutil.Process(os.getppid())
    store.set_preference(UNSENT, json.dumps({"text": "theirs", "process": other.pid, "began": other.create_time()}))
    store.close()
    async with opened(path, ScriptedEngine("ok")) as chat:
        assert chat.screen.prompt.text == ""
    store = Store(path)
    assert "theirs" in store.preference(UNSENT)
    store.close()


@piloted
async def test_a_command_can_be_called_back(path: Path) -> None:
    async with opened(path, ScriptedEngine("ok")) as chat:
        await chat.say("/set temperature 0.5")
        await chat.until("temperature 0.5")
        await chat.press("up")
        assert chat.screen.prompt.text == "/set temperature 0.5"
