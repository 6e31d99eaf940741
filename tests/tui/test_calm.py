"""Each number stands in one place, graphs are there when wanted, and reasons are told by F2."""

from __future__ import annotations

from pathlib import Path

from app.tui.widgets.panel import SidePanel
from tests.support.scripted import ScriptedEngine
from tests.support.tui import chats_path, engine_of, opened, piloted

path = chats_path


@piloted
async def test_each_number_is_told_once(path: Path) -> None:
    async with opened(path, ScriptedEngine(" ".join(["word"] * 50))) as chat:
        await chat.ask("Q")
        await chat.until("100 tok/s", "context 54/256", gone="guesses")
        for number in ("100 tok/s", "context 54/256"):
            assert chat.seen().count(number) == 1


@piloted
async def test_the_reason_is_said_by_f2_when_speculation_is_off(path: Path) -> None:
    async with opened(path, ScriptedEngine(" ".join(["word"] * 50), drafter="")) as chat:
        await chat.ask("Q")
        await chat.until("100 tok/s", gone="guesses")
        assert "drafter" not in chat.seen()
        await chat.press("f2")
        await chat.until("The model wrote every token by itself: guesses from a draft model")


@piloted
async def test_numbers_of_a_running_reply_stand_above_the_prompt_and_then_below_the_reply(path: Path) -> None:
    words = ["word"] * 50
    async with opened(path, ScriptedEngine(" ".join([*words, "[wait]end"]))) as chat:
        await chat.say("Q")
        await chat.until("100 tok/s · context")
        engine_of(chat).go.set()
        await chat.idle()
        await chat.until("100 tok/s", gone="tok/s · context")


@piloted
async def test_graphs_are_off_until_they_are_wanted_and_take_no_room_while_empty(path: Path) -> None:
    for size in ((120, 36), (80, 24)):
        async with opened(path, ScriptedEngine(" ".join(["word"] * 50)), size=size) as chat:
            panel = chat.app.screen.query_one(SidePanel)
            await chat.press("ctrl+b")
            await chat.until("The graphs appear with the next reply")
            assert not panel.region
            assert chat.screen.transcript.region.width == size[0]
            await chat.ask("Q")
            await chat.until("Written at once: 1.9", "Guessed ahead: 0.9")
            assert panel.region
            assert chat.seen().count("Written at once") == chat.seen().count("Guessed ahead") == 1
            await chat.press("ctrl+b")
            await chat.until("context 54/256", gone="Written at once")
            assert not panel.region


@piloted
async def test_the_footer_names_the_key_for_models_and_the_colours_keep_theirs(path: Path) -> None:
    async with opened(path, ScriptedEngine("mine theirs mine")) as chat:
        footer = chat.seen().splitlines()[-1]
        assert "^l Model" in footer
        assert "Tokens" not in footer
        await chat.ask("Q")
        await chat.press("ctrl+t")
        await chat.until("■ a draft model")
