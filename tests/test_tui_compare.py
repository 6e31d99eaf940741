"""Two models side by side for one question in the terminal chat; the numbers of replies in exports."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from app.tui.dialogs.compare_screen import Side
from app.tui.widgets.message_view import MessageView
from bench.instruments.facts import facts
from runtime.core.errors import ModelError, NoMemoryError
from runtime.engine import Message
from tests.support.scripted import ScriptedEngine
from tests.support.tui import PATIENCE, chats_path, engine_of, opened, piloted

path = chats_path


@piloted
async def test_both_models_answer_the_last_question_and_one_reply_is_kept_as_a_version(path: Path) -> None:
    first, second = ScriptedEngine("An older answer", "The left one"), ScriptedEngine("The [wait]right one")
    async with opened(path, first, second, size=(100, 30)) as chat:
        await chat.ask("/set temperature 0.5")
        await chat.ask("Which is it?")
        await chat.say("/compare demo")
        await chat.until("Which is it?", "scripted", "demo", "The left one", "The")
        second.go.set()
        await chat.until("The right one", "100 tok/s", "1 or 2 keeps")
        assert second.asked[0][0] == first.asked[1][0] == [Message("user", "Which is it?")]
        assert second.asked[0][1].temperature == 0.5
        await chat.press("2")
        await chat.until("The right one", "version 2 of 2", gone="The left one")
        assert second.closed
        assert not first.closed
        assert [each.facts.get("model") for each in chat.screen.branch.messages()] == [None, "demo"]


@piloted
async def test_a_question_that_is_given_is_asked_of_both_and_comes_into_the_chat_with_its_reply(path: Path) -> None:
    async with opened(path, ScriptedEngine("left"), ScriptedEngine("right"), size=(100, 30)) as chat:
        await chat.say("/compare demo How so?")
        await chat.until("How so?", "left", "right", "1 or 2 keeps")
        await chat.press("escape")
        await chat.until("new chat", gone="How so?")
        assert chat.screen.branch.id is None


@piloted
async def test_numbers_have_one_line_so_that_both_replies_begin_on_the_same(path: Path) -> None:
    async with opened(path, ScriptedEngine("left one"), ScriptedEngine("right one"), size=(60, 30)) as chat:
        await chat.say("/compare demo How so?")
        await chat.until("left one", "right one", "1 or 2 keeps")
        chat.app.screen.query(Side).first().say_numbers(["123 tok/s", "1.40× as fast", "98% of guesses right"])
        await chat.until("123 tok/s · 1.40× as fast", gone="98%")
        assert len({each.region.y for each in chat.app.screen.query(MessageView)}) == 1


@piloted
async def test_the_left_reply_can_be_kept_while_the_right_one_comes(path: Path) -> None:
    second = ScriptedEngine("a [wait]b")
    async with opened(path, ScriptedEngine("left"), second, size=(100, 30)) as chat:
        await chat.say("/compare demo How so?")
        await chat.until("left", "a")
        await chat.press("2")
        await chat.until("There is no reply to keep yet")
        await chat.press("1")
        await chat.until("scripted · How so?", "left")
        await chat.screen.workers.wait_for_complete()
        await chat.pilot.pause()
        assert second.closed


@pytest.mark.parametrize("reason", [ModelError("demo is damaged."), NoMemoryError("demo needs 9 MiB.")])
def test_a_model_that_cannot_be_opened_says_so_on_its_side(path: Path, reason: Exception) -> None:
    @piloted
    async def run() -> None:
        async with opened(path, ScriptedEngine("left"), reason, size=(100, 30)) as chat:
            await chat.say("/compare demo How so?")
            await chat.until("left", str(reason))
            await chat.press("1")
            await chat.until("scripted · How so?", "left")

    run()


@piloted
async def test_a_model_that_would_have_less_than_it_wants_beside_the_other_is_not_compared(path: Path) -> None:
    second = ScriptedEngine("right")
    second.facts = facts(left_out="memory is short: left out the draft model", is_short=True)
    async with opened(path, ScriptedEngine("left"), second, size=(100, 30)) as chat:
        await chat.say("/compare demo How so?")
        await chat.until("left", "There is not enough memory for two models")
        assert second.closed


@piloted
async def test_nothing_is_compared_without_a_question_or_with_what_is_not_here(path: Path) -> None:
    async with opened(path, ScriptedEngine("left")) as chat:
        await chat.say("/compare demo")
        await chat.until("There is no question yet")
        await chat.say("/compare qwen3-4b Why?")
        await chat.until("is not on this machine yet")
        assert engine_of(chat).asked == []


@piloted
async def test_an_export_tells_who_wrote_a_reply_and_how_fast_where_that_is_wanted(path: Path) -> None:
    async with opened(path, ScriptedEngine("one two three")) as chat:
        await chat.ask("Q")
        for command in ("/export plain.md", "/export --numbers told.md", "/export --numbers told.json"):
            await chat.say(command)
            async with asyncio.timeout(PATIENCE):  # for the file: a notice breaks its long path anywhere
                while not Path(command.split()[-1]).exists():
                    await chat.pilot.pause()
        assert "tok/s" not in Path("plain.md").read_text()
        assert "one two three\n\n*scripted · 100 tok/s" in Path("told.md").read_text()
        reply = json.loads(Path("told.json").read_text())["messages"][1]
        assert (reply["model"], reply["numbers"]["tokens"], reply["numbers"]["tokens_per_second"]) == (
            "scripted",
            3,
            100.0,
        )
