"""Two models side by side for one question in the terminal chat; the numbers of replies in exports."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from app.models import prospects
from app.tui.actions import comparing
from app.tui.actions.comparing import Forecast, told_before
from app.tui.dialogs.compare_screen import Side
from app.tui.widgets.message_view import MessageView
from bench.instruments.toy import facts
from runtime.core.errors import ModelError, NoMemoryError
from runtime.engine import Message
from runtime.loading import profile_cache
from runtime.loading.profile_cache import ProfileCache
from runtime.models.registry import load_registry
from tests.support.scripted import ScriptedEngine
from tests.support.tui import PATIENCE, chats_path, engine_of, opened, piloted

path = chats_path


@piloted
async def test_the_other_model_answers_the_last_question_and_its_reply_is_kept_as_a_version(path: Path) -> None:
    first, second = ScriptedEngine("The left one"), ScriptedEngine("The [wait]right one")
    async with opened(path, first, second, size=(100, 30)) as chat:
        await chat.ask("/set temperature 0.5")
        await chat.ask("Which is it?")
        await chat.say("/compare demo")
        await chat.until("Which is it?", "scripted", "demo", "100 tok/s", "The left one", "The")
        second.go.set()
        await chat.until("The right one", "100 tok/s", "1 or 2 keeps")
        assert second.asked[0][0] == first.asked[0][0] == [Message("user", "Which is it?")]
        assert sum(asked[2] is None for asked in first.asked) == 1  # its reply is the one in the chat; titles are short
        assert second.asked[0][1].temperature == 0.5
        await chat.press("2")
        await chat.until("The right one", "version 2 of 2", gone="The left one")
        assert second.closed
        assert not first.closed
        assert [each.facts.get("model") for each in chat.screen.branch.messages()] == [None, "demo"]
        assert chat.session.recent == ["scripted", "demo"]  # the next start begins with the chat's model


@piloted
async def test_a_reply_that_was_stopped_is_written_again_to_be_compared(path: Path) -> None:
    first = ScriptedEngine("A [wait]half", "The left one")
    async with opened(path, first, ScriptedEngine("The right one"), size=(100, 30)) as chat:
        await chat.say("Which is it?")
        await chat.until("A")
        await chat.press("escape")
        await chat.idle()
        await chat.say("/compare demo")
        await chat.until("The left one", "The right one", "1 or 2 keeps")
        await chat.press("1")
        await chat.until("The left one", "version 2 of 2")


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
async def test_nothing_is_compared_without_a_question_or_with_what_is_no_other_model_here(path: Path) -> None:
    Path("some text.gguf").write_text("a text")
    async with opened(path, ScriptedEngine("left"), pair=load_registry()["demo"]) as chat:
        for argument, refusal in (
            ("smollm3-3b", "is not on this machine yet"),  # the name is the first that is checked
            ("nonsense", "There is no model 'nonsense'"),
            ('"some text.gguf" Why?', "some text.gguf is not a GGUF file"),
            ("demo Why?", "demo answers in this chat anyway"),
            ("", "There is no question yet"),
        ):
            await chat.say(f"/compare {argument}")
            await chat.until(refusal)
        assert engine_of(chat).asked == []


@piloted
async def test_the_list_of_models_to_compare_with_has_not_the_own_one_and_says_what_cannot_be_compared(
    path: Path,
) -> None:
    async with opened(path, ScriptedEngine("left"), size=(100, 30), pair=load_registry()["demo"]) as chat:
        await chat.ask("Which is it?")
        await chat.say("/compare")
        await chat.until("Compare with", "↓ smollm3-3b", gone="▸ demo")
        await chat.type("smollm3")
        await chat.press("enter")
        await chat.until("smollm3-3b is not on this machine yet", "│ smollm3 ")


@piloted
async def test_a_long_prompt_is_announced_before_it_is_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (ScriptedEngine("An answer.", n_ctx=4096) for _ in range(2))
    speeds = {"demo": 0.02}
    monkeypatch.setattr(comparing, "reading_seconds", lambda path: speeds["demo"])
    async with opened(path, first, second, size=(100, 30)) as chat:
        await chat.ask("word " * 2000)
        await chat.say("/compare demo")
        await chat.until("Before it answers, demo reads 2,003 tokens, which takes about 40 s.")
        await chat.press("escape")
        await chat.until("scripted", gone="Before it answers")
        assert second.asked == []
        await chat.say("/compare demo And what of it?")
        await chat.until("demo reads 2,00", "which takes about 40 s.", gone="scripted reads")  # it has read nearly all
        await chat.press("enter")
        await chat.until("1 or 2 keeps")
        assert second.asked


def test_a_reading_is_announced_only_if_it_takes_longer_than_a_moment() -> None:
    assert told_before([Forecast("a", 400, 0.01), Forecast("b", 400, 0.0)]) == ""
    told = "Before they answer, a reads 900 tokens, which takes about 9 s and then b reads 900 tokens."
    assert told_before([Forecast("a", 900, 0.01), Forecast("b", 900, 0.0)]).startswith(told)


def test_a_prompt_is_read_as_fast_as_before_and_another_model_in_proportion_to_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prospects, "reading_memo", lambda: ProfileCache("reading", tmp_path))
    small, large = tmp_path / "small.gguf", tmp_path / "large.gguf"
    small.write_bytes(bytes(100))
    large.write_bytes(bytes(300))
    assert prospects.reading_seconds(small) == 0.0
    profile_cache.record(small, 0.01, prospects.reading_memo())
    assert prospects.reading_seconds(small) == 0.01
    assert prospects.reading_seconds(large) == pytest.approx(0.03)


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
