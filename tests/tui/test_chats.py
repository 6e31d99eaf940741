"""The chats of the terminal chat, by what is seen: a list, a long one, a store that refuses, files to keep."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from textual.events import Key

from app.chats.store import Store
from app.tui import between_replies as titles
from app.tui.actions.chats import open_chat
from app.tui.widgets.message_view import MessageView
from tests.support.scripted import ScriptedEngine
from tests.support.tui import PATIENCE, ChatPilot, chats_path, engine_of, opened, piloted

path = chats_path


@piloted
async def test_chats_are_titled_found_renamed_and_deleted(path: Path) -> None:
    async with opened(path, ScriptedEngine("Bananas are yellow.", "Plums are blue.")) as chat:
        await chat.ask("About fruit")
        await chat.until("Slipstream · scripted · About fruit")
        await chat.press("ctrl+n")
        await chat.until("new chat", gone="Bananas")
        await chat.ask("Other fruit")
        await chat.press("ctrl+o")
        await chat.until("About fruit", "Other fruit")
        await chat.type("banan")
        await chat.until("About fruit", "Bananas are yellow")
        await chat.press("ctrl+e", "ctrl+a", "ctrl+k")
        await chat.type("Yellow things")
        await chat.press("enter")
        await chat.until("Yellow things")
        await chat.press("enter")
        await chat.until("Slipstream · scripted · Yellow things", "Bananas are yellow.")
        await chat.press("ctrl+o")
        await chat.type("plum")
        await chat.press("ctrl+d", "ctrl+d")
        await chat.press("escape")
        assert [each.title for each in chat.session.store.chats()] == ["Yellow things"]


@piloted
async def test_the_open_chat_is_deleted_and_a_new_one_begins_also_in_mid_reply(path: Path) -> None:
    async with opened(path, ScriptedEngine("one [wait]two", "fresh")) as chat:
        for question, reply in (("About fruit", "one"), ("More about it", "fresh")):
            await chat.say(question)
            await chat.until(reply)
            await chat.press("ctrl+o", "ctrl+d")
            await chat.until(f"Press Ctrl+D again to delete “{question}” for good. A new chat begins.")
            await chat.press("ctrl+d")
            await chat.until("The chat is deleted.")
            await chat.press("escape")
            await chat.until("new chat", "Ask something", gone=question)
            assert chat.session.store.chats() == []
        await chat.ask("Again")
        await chat.until("fresh", "Slipstream · scripted · Again")


@piloted
async def test_a_chat_gets_its_title_from_the_model_when_nobody_asks(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(titles, "QUIET", 0.1)
    engine = ScriptedEngine("Eight minutes in boiling water.", "[wait]Never heard", "Title: **Boiling eggs**")
    async with opened(path, engine) as chat:
        await chat.ask("How do I boil eggs well?")
        await chat.until("Slipstream · scripted · How do I boil eggs well?")
        async with asyncio.timeout(PATIENCE):
            while len(engine.asked) < 2:
                await asyncio.sleep(0.01)
        assert engine.asked[1][0][-1].content == "Title of: How do I boil eggs well?"
        await chat.press("ctrl+n")
        engine.replies[1:2] = ["Eight minutes.", "Eight minutes."]
        await chat.ask("How do I boil eggs best?")  # gives way
        await chat.until("Slipstream · scripted · Boiling eggs")
        assert [each.title for each in chat.session.store.chats()] == ["Boiling eggs", "How do I boil eggs well?"]


@piloted
async def test_exports_are_written_and_nothing_is_overwritten(path: Path) -> None:
    async with opened(path) as chat:
        await chat.say("/export")
        await chat.until("nothing to export yet")
        await chat.ask("Q")
        await chat.say("/export --number out.json")
        await chat.until("/export --numbers chat.md")
        await chat.ask("/export out.json")
        assert json.loads(Path("out.json").read_text())["messages"][-1] == {"role": "assistant", "content": "Hello."}
        await chat.say("/export out.json")
        await chat.until("exists already")


@pytest.mark.slow
@piloted
async def test_a_chat_of_five_thousand_lines_is_scrolled_from_its_end_to_its_beginning(path: Path) -> None:
    store = Store(path)
    number, leaf = store.new_chat("long"), None
    for i in range(50):
        leaf = store.add_message(number, leaf, "user", f"Question {i}.")
        leaf = store.add_message(
            number, leaf, "assistant", "\n".join(["```", *(f"line {100 * i + j}." for j in range(100)), "```"])
        )
    store.close()
    async with opened(path) as chat:
        await chat.press("ctrl+o", "enter")
        await chat.until("line 4999.")
        before = chat.seen()
        for n, end in ((-200, "line 1760."), (200, "line 4999.")):
            chat.screen.transcript.scroll_pages(n)
            await chat.until(end)
        assert chat.seen() == before
        assert chat.screen.transcript.virtual_size.height > 3000
        await chat.press("ctrl+home")
        await chat.until("Question 0.", "line 0.")
        await chat.press("ctrl+end")
        await chat.until("line 4999.")


@piloted
async def test_a_reply_is_whole_when_one_comes_back_to_it(path: Path) -> None:
    store = Store(path)
    number, leaf = store.new_chat("long"), None
    for i in range(120):
        leaf = store.add_message(number, leaf, "assistant" if i % 2 else "user", f"Message {i}.")
    store.close()
    async with opened(path, ScriptedEngine("one two [wait]three", n_ctx=2048)) as chat:
        await chat.press("ctrl+o", "enter")
        await chat.say("Last?")
        await chat.until("one two")
        await chat.press("ctrl+home")
        await chat.until("Message 0.", gone="Last?")
        await chat.press("ctrl+end")
        await chat.until("Last?", "one two", gone="interrupted")
        await chat.press("ctrl+home")
        await chat.until("Message 0.", gone="Last?")
        engine_of(chat).go.set()
        await chat.until("The reply has ended below")
        await chat.press("ctrl+end")
        await chat.until("one two three")


def messages(chat: ChatPilot) -> list[str]:
    """The rows of the chat on screen, without the scrollbar."""
    return [row[:-2].rstrip() for row in chat.seen().splitlines()[1:18]]


def chat_of(path: Path, n_messages: int) -> None:
    """A chat of short messages, written in one go."""
    store = Store(path)
    number, leaf = store.new_chat("long"), None
    with store._db as db:
        for i in range(n_messages):
            role = "assistant" if i % 2 else "user"
            row = number, leaf, role, f"Message {i}."
            leaf = db.execute("INSERT INTO messages(chat, parent, role, content) VALUES (?, ?, ?, ?)", row).lastrowid
    store.set_leaf(number, leaf)
    store.close()


@pytest.mark.slow
@piloted
async def test_home_end_and_paging_go_through_a_chat_of_five_thousand_messages(path: Path) -> None:
    chat_of(path, 5000)
    async with opened(path) as chat:
        await chat.press("ctrl+o", "enter")
        await chat.until("Message 4999.")
        await chat.press("home")
        await chat.until("Message 0.", gone="4999")
        transcript = chat.screen.transcript
        while len(chat.screen.query(MessageView)) < 80 or chat.screen.query(MessageView).last().message_id < 100:
            await chat.press("pagedown")
        views = chat.screen.query(MessageView)
        assert [views.first().message_id, views.last().message_id] == [21, 100]  # no more than that is there at once
        transcript.scroll_to(y=0, animate=False)
        await chat.until("Message 20.", gone="Message 80.")
        for _ in range(20):  # earlier ones come as soon as they can
            await chat.press("pageup")
        await chat.until("Message 0.", gone="Message 20.")
        await chat.ask("Last?")
        await chat.until("Message 4999.", "Last?", "The context of 256 tokens is full")
        await chat.press("f9")
        await chat.until("Last?", "Hello.")


@pytest.mark.slow
@piloted
async def test_no_key_is_lost_while_earlier_messages_come(path: Path) -> None:
    chat_of(path, 400)
    async with opened(path) as chat:
        await chat.press("ctrl+o", "enter")
        await chat.until("Message 399.")
        await chat.press("pageup")
        before = messages(chat)
        for keys, last in ((["pageup"] * 30, "Message 135."), (["pagedown"] * 30, "Message 390.")):
            for key in keys:  # all at once, as a terminal that was busy hands them on
                chat.app.post_message(Key(key, None))
            await chat.until(last)
        assert messages(chat) == before
        for key in ("pageup",) * 30 + ("ctrl+home", "pagedown"):
            chat.app.post_message(Key(key, None))
        await chat.until("Message 12.", gone="Message 1.")


@piloted
async def test_an_unwritable_store_is_said_from_the_start_whatever_the_model_lacks(path: Path) -> None:
    path.mkdir()
    engine = ScriptedEngine()
    engine.facts = replace(engine.facts, template="")
    async with opened(path, engine) as chat:
        await chat.until("scripted is ready", "kept in memory only", gone="no chat template")
        assert "has no chat template" in chat.session.log[-1]


@piloted
async def test_an_unwritable_store_is_said_and_chatting_goes_on(path: Path) -> None:
    path.mkdir()
    async with opened(path) as chat:
        await chat.until("kept in memory only")
        await chat.ask("Q")
        await chat.until("Hello.", "kept in memory only")


@piloted
async def test_a_chat_that_went_while_a_reply_ended_is_a_sentence(path: Path) -> None:
    async with opened(path, ScriptedEngine("one [wait]two")) as chat:
        await chat.say("Q")
        await chat.until("one")
        chat.screen.waiting = partial(open_chat, chat=99)
        engine_of(chat).go.set()
        await chat.until("one two", "This chat was deleted")
