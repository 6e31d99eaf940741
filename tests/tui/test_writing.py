"""What is written into the prompt of the terminal chat: keys, history, pastes, files, commands and settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.events import Key
from textual.widgets import OptionList

from app.chats.store import Store
from app.tui.widgets.prompt import PromptBox
from app.tui.widgets.text_area import MARK
from tests.support.scripted import ScriptedEngine
from tests.support.tui import chats_path, engine_of, opened, piloted

path = chats_path


@piloted
async def test_a_burst_of_keys_keeps_its_order(path: Path) -> None:
    async with opened(path) as chat:
        for key in "hi":
            chat.app.post_message(Key(key, key))
        chat.app.post_message(Key("ctrl+j", "\n"))
        chat.app.post_message(Key("x", "x"))
        chat.app.post_message(Key("enter", "\r"))
        await chat.until("Hello.")
        assert engine_of(chat).asked[0][0][-1].content == "hi\nx"


@piloted
async def test_editing_keys_in_a_burst_keep_their_place(path: Path) -> None:
    async with opened(path) as chat:
        box = chat.app.screen.query_one("#prompt", PromptBox)

        async def burst(*keys: str) -> str:
            for key in keys:
                chat.app.post_message(Key(key, key if len(key) == 1 else None))
            await chat.pilot.pause()
            return box.text

        assert await burst(*"helo", "backspace", *"lo yo") == "hello yo"
        assert await burst("ctrl+w", *"me", "home", *"oh ") == "oh hello me"
        assert await burst("end", "left", *"x", "delete", *"y") == "oh hello mxy"
        assert await burst("ctrl+u", *"new", "ctrl+a", "shift+right", *"N") == "New"


@piloted
async def test_joiners_are_letters(path: Path) -> None:
    async with opened(path) as chat:
        for letter in "\u0645\u06cc\u200c\u062e \U0001f469\u200d\U0001f4bb":
            chat.app.post_message(Key(letter, letter))
        await chat.pilot.pause()
        assert (
            chat.app.screen.query_one("#prompt", PromptBox).text
            == "\u0645\u06cc\u200c\u062e \U0001f469\u200d\U0001f4bb"
        )


@piloted
async def test_several_lines_history_and_its_search(path: Path) -> None:
    async with opened(path, ScriptedEngine("ok")) as chat:
        await chat.ask("first\nline")
        await chat.ask("second")
        assert [turns[-1].content for turns, _, _ in engine_of(chat).asked] == ["first\nline", "second"]
        box = chat.app.screen.query_one("#prompt", PromptBox)
        await chat.type("draft")
        await chat.press("up")
        assert box.text == "second"
        await chat.press("up", "up")
        assert box.text == "first\nline"
        await chat.press("down", "down", "down")
        assert box.text == "draft"
        await chat.press("ctrl+r", "f", "i", "enter")
        assert box.text == "first\nline"


@piloted
async def test_the_search_in_the_history_has_questions_without_commands_and_without_attached_files(path: Path) -> None:
    Path("a.py").write_text("print('inside')\n")
    for start in ("begun", "begun again"):
        async with opened(path, ScriptedEngine("ok")) as chat:
            if start == "begun":
                await chat.ask("What does @a.py do?")
                await chat.say("/set temperature 0.5")
                await chat.until("temperature")
                await chat.say("/nonsense")
                await chat.until("no command /nonsense")
            await chat.press("ctrl+r")
            await chat.until("What does @a.py do?")
            found = chat.app.screen.query_one(OptionList)
            assert [str(each.prompt) for each in found.options] == ["What does @a.py do?"], start
            await chat.press("enter")
            assert chat.screen.prompt.text == "What does @a.py do?"


@piloted
async def test_a_long_paste_is_a_chip_and_is_sent_whole(path: Path) -> None:
    async with opened(path) as chat:
        long = "\n".join(f"line {i}" for i in range(20))
        await chat.paste("short ")
        await chat.paste(long)
        await chat.until("[Pasted #1: 20 lines, 149 characters]")
        await chat.press("enter")
        await chat.idle()
        assert engine_of(chat).asked[0][0][-1].content == "short " + long
        await chat.until("more lines")


@piloted
async def test_what_looks_like_a_chip_is_text(path: Path) -> None:
    long = "\n".join(f"line {i}" for i in range(20))
    async with opened(path, ScriptedEngine("ok")) as chat:
        await chat.paste(long)
        await chat.press("enter")
        await chat.idle()
        for text in ("[Pasted #0: x]", "[Pasted #1: 20 lines, 149 characters]", MARK + "[Pasted #1: x]" + MARK):
            await chat.paste(text)
            await chat.press("enter")
            await chat.idle()
            assert engine_of(chat).asked[-1][0][-1].content == text.replace(MARK, "")
        await chat.press("up", "up", "up", "up")
        assert chat.app.screen.query_one("#prompt", PromptBox).text == long  # no chip: all of it


@piloted
@pytest.mark.parametrize("n_left", [0, 1, 5])
async def test_backspace_removes_a_chip_and_undo_brings_it_back(path: Path, n_left: int) -> None:
    async with opened(path, ScriptedEngine("ok")) as chat:
        box = chat.app.screen.query_one("#prompt", PromptBox)
        await chat.type("a")
        await chat.paste("\n".join(f"line {i}" for i in range(20)))
        with_chip = box.text
        row, column = box.cursor_location
        box.move_cursor((row, column - n_left))
        await chat.press("backspace")
        assert box.text == "a"
        await chat.press("ctrl+underscore")
        assert box.text == with_chip
        await chat.press("left", "backspace")
        assert box.text == with_chip[1:]


@piloted
@pytest.mark.parametrize("emoji", ["👩‍👩‍👧", "👍🏽", "🇳🇴", "〽️", "e\u0301"])
async def test_one_key_goes_over_and_removes_one_character_as_it_is_drawn(path: Path, emoji: str) -> None:
    async with opened(path, ScriptedEngine("ok")) as chat:
        box = chat.app.screen.query_one("#prompt", PromptBox)
        await chat.paste(f"a{emoji}{emoji}b")
        await chat.press("left", "backspace")
        assert box.text == f"a{emoji}b"
        await chat.press("left", "delete")
        assert box.text == "ab"
        await chat.paste(emoji)
        await chat.press("right", "enter")
        await chat.idle()
        assert engine_of(chat).asked[-1][0][-1].content == f"a{emoji}b"


@piloted
async def test_a_question_of_one_long_line_is_folded_in_its_middle_and_unfolds(path: Path) -> None:
    async with opened(path, ScriptedEngine("one"), size=(80, 60)) as chat:
        await chat.paste("The beginning " + "x" * 1000 + " the middle " + "x" * 1000 + " the end")
        await chat.press("enter")
        await chat.idle()
        await chat.until("The beginning", "634 more characters (Enter on this message)", "the end", gone="the middle")
        await chat.press("shift+tab", "shift+tab", "enter")
        await chat.until("the middle", gone="more characters")


@piloted
async def test_a_very_long_text_comes_back_from_the_history_as_a_chip(path: Path) -> None:
    very_long = "x" * 60_000
    store = Store(path)
    store.add_message(store.new_chat("long"), None, "user", very_long)
    store.close()
    async with opened(path) as chat:
        for _ in range(2):
            await chat.press("up")
            await chat.until("[Pasted #1: 1 line, 60000 characters]")
            await chat.press("down")
        await chat.press("up", "enter")
        await chat.idle()
        assert engine_of(chat).asked[0][0][-1].content == very_long


@piloted
async def test_a_named_file_is_attached_and_a_bad_one_refused(path: Path) -> None:
    Path("note.py").write_text("x = 1\n```\n")
    Path("bad.bin").write_bytes(b"\xff\xfe\x00")
    async with opened(path) as chat:
        await chat.type("Explain @no")
        await chat.press("tab", "enter")
        await chat.idle()
        assert engine_of(chat).asked[0][0][-1].content == "note.py:\n````py\nx = 1\n```\n````\n\nExplain @note.py"
        await chat.say("And @bad.bin")
        await chat.until("bad.bin is not UTF-8 text, so it is not attached. Enter once more", "And @bad.bin")
        assert len(engine_of(chat).asked) == 1
        await chat.press("ctrl+a", "ctrl+k")
        await chat.ask("Mail me @home")
        assert engine_of(chat).asked[1][0][-1].content == "Mail me @home"


@piloted
async def test_an_unknown_command_names_the_nearest(path: Path) -> None:
    async with opened(path) as chat:
        await chat.say("/expert")
        await chat.until("no command /expert", "/export?")
        assert engine_of(chat).asked == []


@piloted
async def test_settings_reach_the_engine_and_senseless_ones_are_refused(path: Path) -> None:
    async with opened(path) as chat:
        await chat.ask("/set temperature 0.5")
        await chat.ask("/set seed 7")
        await chat.ask("Q")
        assert (engine_of(chat).asked[0][1].temperature, engine_of(chat).asked[0][1].seed) == (0.5, 7)
        await chat.say("/set temperature warm")
        await chat.until("not 'warm'")
        await chat.say("/set temprature 1")
        await chat.until("Did you mean 'temperature'?")
