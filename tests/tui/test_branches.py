"""Questions and their versions in the terminal chat, by what is seen; copies; the system prompt."""

from __future__ import annotations

from pathlib import Path

from textual.events import Key

from app.tui.widgets.message_view import MessageView
from runtime.engine import Message
from tests.support.scripted import ScriptedEngine
from tests.support.tui import chats_path, engine_of, opened, piloted

path = chats_path


@piloted
async def test_regenerating_keeps_both_versions_and_arrows_go_between_them(path: Path) -> None:
    async with opened(path, ScriptedEngine("first answer", "second answer")) as chat:
        await chat.ask("Q")
        await chat.press("ctrl+g")
        await chat.until("second answer", "version 2 of 2")
        await chat.idle()
        assert [message.content for message in engine_of(chat).asked[1][0]] == ["Q"]
        chat.app.screen.query(MessageView).last().focus()
        await chat.press("left")
        await chat.until("first answer", "version 1 of 2", gone="second answer")
        await chat.press("right")  # the focus stays there
        await chat.until("second answer", "version 2 of 2", gone="first answer")


@piloted
async def test_a_key_that_bounces_makes_one_reply_at_a_time(path: Path) -> None:
    async with opened(path, ScriptedEngine("one", "two [wait]three")) as chat:
        await chat.ask("Q")
        chat.app.post_message(Key("ctrl+g", None))
        chat.app.post_message(Key("ctrl+g", None))
        await chat.until("two", "is being written")
        assert len(engine_of(chat).asked) == 2
        assert len(chat.app.screen.query(MessageView)) == 2


@piloted
async def test_an_edited_question_branches_the_chat(path: Path) -> None:
    async with opened(path, ScriptedEngine("one", "two", "three")) as chat:
        await chat.ask("cats")
        await chat.ask("more")
        chat.app.screen.query(MessageView).first().focus()
        await chat.press("e")
        await chat.until("Editing")
        await chat.ask(" dogs")
        await chat.until("cats dogs", "three", "version 2 of 2", gone="more")
        assert [message.content for message in engine_of(chat).asked[2][0]] == ["cats dogs"]
        chat.app.screen.query(MessageView).first().focus()
        await chat.press("left")
        await chat.until("cats", "one", "more", "two")


@piloted
async def test_esc_leaves_editing_without_a_trace(path: Path) -> None:
    async with opened(path) as chat:
        await chat.ask("Q")
        await chat.press("f4")
        await chat.until("Editing")
        await chat.press("escape")
        await chat.until(gone="Editing")
        await chat.ask("next")
        assert [message.content for message in engine_of(chat).asked[1][0]] == ["Q", "Hello.", "next"]


@piloted
async def test_copying_gives_raw_text_and_single_code_blocks(path: Path) -> None:
    reply = "See:\n\n```py\nx = '**'\n```\n\nDone."
    async with opened(path, ScriptedEngine(reply)) as chat:
        await chat.ask("Q")
        await chat.press("f5")
        assert chat.copied() == reply
        await chat.app.workers.wait_for_complete()
        assert (path.parent / "desktop").read_text(encoding="utf8") == reply
        await chat.ask("/copy code")
        assert chat.copied() == "x = '**'\n"
        chat.app.screen.query(MessageView).first().focus()
        await chat.press("c")
        assert chat.copied() == "Q"


@piloted
async def test_the_system_prompt_is_sent_first_and_kept_with_the_chat(path: Path) -> None:
    async with opened(path) as chat:
        await chat.ask("/system Be brief.")
        await chat.ask("Q")
        assert engine_of(chat).asked[0][0] == [Message("system", "Be brief."), Message("user", "Q")]
    async with opened(path) as chat:
        await chat.press("ctrl+o", "enter", "f6")
        await chat.until("System prompt", "Be brief.")
