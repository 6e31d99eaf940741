"""A turn is deleted after a question back; a stopped reply is continued by a key."""

from __future__ import annotations

from pathlib import Path

from app.tui.widgets.message_view import MessageView
from tests.support.scripted import ScriptedEngine
from tests.support.tui import ChatPilot, chats_path, engine_of, opened, piloted

path = chats_path


def views(chat: ChatPilot) -> list[MessageView]:
    return list(chat.app.screen.query(MessageView))


def texts(chat: ChatPilot) -> list[str]:
    return [message.content for message in chat.screen.branch.messages()]


@piloted
async def test_the_last_turn_is_deleted_for_good_after_a_question_back(path: Path) -> None:
    async with opened(path, ScriptedEngine("one", "two", "three")) as chat:
        await chat.ask("/delete-turn")
        await chat.until("There is nothing to delete yet.")
        await chat.ask("first")
        await chat.ask("second")
        await chat.say("/delete-turn")
        await chat.until("“second” and every reply to it are deleted for good.")
        await chat.press("escape")
        assert texts(chat) == ["first", "one", "second", "two"]
        await chat.say("/delete-turn")
        await chat.press("enter")
        await chat.until("one", gone="two")
        await chat.ask("next")
        assert [message.content for message in engine_of(chat).asked[-1][0]] == ["first", "one", "next"]
        assert "version" not in chat.seen()
        assert chat.session.store.chats("second") == []


@piloted
async def test_a_turn_in_the_middle_goes_and_later_ones_stay(path: Path) -> None:
    async with opened(path, ScriptedEngine("one", "two", "three")) as chat:
        for question in ("cats", "dogs", "mice"):
            await chat.ask(question)
        views(chat)[3].focus()  # the reply to the second question
        await chat.press("x")
        await chat.until("“dogs” and every reply to it")
        await chat.press("enter")
        await chat.until("cats", "mice", "three", gone="dogs")
        assert texts(chat) == ["cats", "one", "mice", "three"]
        assert chat.app.focused is views(chat)[2]
        await chat.press("escape")
        await chat.ask("more")
        assert [message.content for message in engine_of(chat).asked[-1][0]] == ["cats", "one", "mice", "three", "more"]
    async with opened(path, ScriptedEngine("one")) as chat:
        await chat.press("ctrl+o", "enter")
        await chat.until("cats", "mice", "more")


@piloted
async def test_of_a_deleted_version_the_other_one_is_shown(path: Path) -> None:
    async with opened(path, ScriptedEngine("one", "two")) as chat:
        await chat.ask("cats")
        await chat.press("f4")
        await chat.ask(" and dogs")
        await chat.until("version 2 of 2")
        await chat.say("/delete-turn")
        await chat.press("enter")
        await chat.until("one", gone="two")
        assert texts(chat) == ["cats", "one"]
        assert "version" not in chat.seen()


@piloted
async def test_later_questions_of_other_versions_of_a_reply_stay_as_versions(path: Path) -> None:
    async with opened(path, ScriptedEngine("one", "two", "three", "four")) as chat:
        await chat.ask("first")
        await chat.ask("after one")
        views(chat)[1].focus()
        await chat.press("r")
        await chat.idle()
        await chat.press("escape")
        await chat.ask("after three")
        views(chat)[0].focus()
        await chat.press("delete")
        await chat.press("enter")
        await chat.until("after three", "version 2 of 2", gone="three 1")
        assert texts(chat) == ["after three", "four"]
        await chat.press("left")
        await chat.until("after one", "two", "version 1 of 2")


@piloted
async def test_all_turns_may_go_and_none_during_a_reply(path: Path) -> None:
    async with opened(path, ScriptedEngine("one [wait]two", "three")) as chat:
        await chat.say("Q")
        await chat.until("one")
        await chat.say("/delete-turn")
        await chat.until("A reply is being written.")
        await chat.press("escape")
        await chat.idle()
        await chat.say("/delete-turn")
        await chat.press("enter")
        await chat.until("Ask something", gone="stopped")
        await chat.ask("again")
        assert texts(chat) == ["again", "three"]


@piloted
async def test_a_key_continues_a_stopped_reply_and_is_named_until_then(path: Path) -> None:
    async with opened(path, ScriptedEngine("one [wait]two", "and the rest")) as chat:
        await chat.press("ctrl+s")
        await chat.until("There is no reply to continue.")
        await chat.say("Q")
        await chat.until("one")
        await chat.press("escape")
        await chat.until("The reply was stopped. Ctrl+S continues it, Ctrl+G begins another one.")
        engine_of(chat).replies[1] = "and [wait]the rest"
        engine_of(chat).go.clear()
        await chat.press("ctrl+s")
        await chat.until("oneand", gone="The reply was stopped")
        engine_of(chat).go.set()
        await chat.until("the rest")
        assert engine_of(chat).asked[1][0].begun.startswith("one")


@piloted
async def test_the_key_that_continues_is_named_as_the_keymap_has_it(path: Path) -> None:
    async with opened(path, ScriptedEngine("one [wait]two", "rest"), keymap={"chat.continue": "f12"}) as chat:
        await chat.say("Q")
        await chat.until("one")
        await chat.press("escape")
        await chat.until("F12 continues it")
        await chat.press("f9")
        await chat.until("rest")
