"""A reply that edits a given file is offered as a diff in the terminal chat, written with a key, and taken back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from app.chats.store import Store
from app.tui.actions import context
from app.tui.actions.messages import KEPT, kept
from app.tui.actions.offering import is_foreign
from app.tui.dialogs.basic import DiffScreen
from runtime.models.registry import load_registry
from tests.support.scripted import ScriptedEngine
from tests.support.tui import chats_path, engine_of, opened, piloted

path = chats_path
FILE = "def area(w, h):\n    return w * h\n\n\nprint(area(2, 3))"
REPLY = f"Here:\n\n```python\n{FILE.replace('area', 'size')}\n```\n"
OFFER = "The reply changes a.py. F9 shows how"


@piloted
async def test_an_edit_is_offered_shown_written_and_taken_back(path: Path) -> None:
    Path("a.py").write_text(FILE + "\n")
    async with opened(path, ScriptedEngine(REPLY)) as chat:
        await chat.ask("Rename it in @a.py")
        assert engine_of(chat).predictions == [f"```py\n{FILE}\n```"]
        await chat.until(OFFER)
        await chat.press("f9")
        await chat.until("a.py: +2 -2 lines", "-def area(w, h):", "+def size(w, h):", "Enter writes the file")
        await chat.press("escape")
        assert Path("a.py").read_text() == FILE + "\n"
        await chat.press("f9", "enter")
        await chat.until("a.py is written", "written to a.py", gone=OFFER)
        assert Path("a.py").read_text() == FILE.replace("area", "size") + "\n"
        await chat.say("/diff")
        await chat.until("is written already")
        await chat.say("/undo")
        await chat.until("as it was before the changes", gone="written to a.py")
        assert Path("a.py").read_text() == FILE + "\n"
        chat.app.clear_notifications()
        await chat.until(OFFER)
        await chat.press("f8")
        await chat.until("is written with the changes of a reply", "is as it was before the changes (/undo)")


@piloted
async def test_an_edit_can_be_taken_back_after_a_restart(path: Path) -> None:
    Path("a.py").write_text(FILE + "\n")
    async with opened(path, ScriptedEngine(REPLY)) as chat:
        await chat.ask("Rename it in @a.py")
        await chat.press("f9", "y")
        await chat.until("written to a.py")
    async with opened(path) as chat:
        await chat.say("/undo")
        await chat.until("as it was before the changes")
        assert Path("a.py").read_text() == FILE + "\n"
        await chat.say("/undo")
        await chat.until("No edit of a file was accepted")


@piloted
async def test_a_file_that_was_changed_meanwhile_is_left_as_it_is(path: Path) -> None:
    Path("a.py").write_text(FILE + "\n")
    async with opened(path, ScriptedEngine(REPLY)) as chat:
        await chat.ask("Rename it in @a.py")
        Path("a.py").write_text("# by hand\n")
        await chat.press("f9", "enter")
        await chat.until("has changed since")
        assert Path("a.py").read_text() == "# by hand\n"


@piloted
async def test_a_later_edit_goes_on_from_the_written_one(path: Path) -> None:
    Path("a.py").write_text(FILE + "\n")
    later = REPLY.replace("area", "size").replace("h)", "height)")
    async with opened(path, ScriptedEngine(REPLY, later)) as chat:
        await chat.ask("Rename it in @a.py")
        await chat.press("f9", "enter")
        await chat.ask("And h, too")
        assert "def size" in engine_of(chat).predictions[1]
        await chat.press("f9", "enter")
        await chat.until("written to a.py")
        assert "def size(w, height):" in Path("a.py").read_text()


@piloted
async def test_nothing_is_offered_of_other_replies(path: Path) -> None:
    Path("a.py").write_text(FILE + "\n")
    async with opened(path, ScriptedEngine("It multiplies.", f"```py\n{FILE}", REPLY)) as chat:
        await chat.ask("What does @a.py do?")
        assert OFFER not in chat.seen()
        await chat.press("f9")
        await chat.until("Nothing is offered now")
        await chat.say("/diff")
        await chat.until("contains no whole file that")


@piloted
async def test_the_key_on_an_earlier_reply_shows_its_edit(path: Path) -> None:
    Path("a.py").write_text(FILE + "\n")
    async with opened(path, ScriptedEngine(REPLY, "Welcome.")) as chat:
        await chat.ask("Rename it in @a.py")
        await chat.ask("Thanks")
        assert OFFER not in chat.seen()
        chat.screen.transcript.views("assistant")[0].focus()
        await chat.press("d")
        assert isinstance(chat.app.screen, DiffScreen)


@piloted
async def test_a_full_context_is_said_and_the_oldest_turns_are_left_out_when_that_is_wanted(path: Path) -> None:
    async with opened(path, ScriptedEngine("one two three", n_ctx=20)) as chat:
        await chat.ask("a b c d")
        await chat.ask("e f g h")
        await chat.say("i j k l m n")
        await chat.until("no room: the context is full", "tokens is full. F9 continues without the oldest turns")
        assert len(engine_of(chat).asked) == 2
        await chat.press("f9")
        await chat.idle()
        await chat.until("one two three", "a b c d", gone="no room")
        turns = engine_of(chat).asked[2][0]
        assert turns[-1].content == "i j k l m n"
        await chat.ask("o p q r")
        assert "when_full leave-out" in chat.seen()
        assert len(engine_of(chat).asked) == 4


@piloted
async def test_a_question_that_is_too_long_by_itself_is_said_to_be(path: Path) -> None:
    async with opened(path, ScriptedEngine("one two three", n_ctx=20)) as chat:
        await chat.ask("a b c d")
        await chat.say(" ".join("abcdefghijklmnopqrstuvwxyz"))
        await chat.until("left out: the question is too long", gone="F9 continues")


@piloted
async def test_messages_that_wait_come_back_where_the_context_is_full(path: Path) -> None:
    async with opened(path, ScriptedEngine("one two", "[wait]three [full]four", n_ctx=60)) as chat:
        await chat.ask("a b c d")
        await chat.say("e f g h")
        await chat.pilot.pause()
        await chat.say("later")
        await chat.until("Sent when the model is free")
        engine_of(chat).go.set()
        await chat.until("cut off: the context is full", "F9 continues without the oldest turns")
        assert chat.screen.prompt.text == "later"


@piloted
async def test_a_full_context_in_mid_reply_is_made_longer_and_the_reply_continues(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "free_memory", lambda: 8_000_000_000)
    small, large = ScriptedEngine("one two [full]three", n_ctx=256), ScriptedEngine("rest", n_ctx=512)
    small.facts = replace(small.facts, n_ctx_train=512)
    async with opened(path, small, large, pair=load_registry()["demo"]) as chat:
        await chat.ask("a b c d")
        await chat.until("The context of 256 tokens is full. F9 or /context loads the model with a longer one.")
        await chat.press("f9", *["backspace"] * 3)
        await chat.type("512")
        await chat.press("enter")
        await chat.until("Context of 512 tokens")
        await chat.press("enter")
        await chat.until("The context is longer now. F9 continues the reply.")
        await chat.press("f9")
        await chat.until("one tworest", gone="The context")


@piloted
async def test_what_becomes_of_the_oldest_turns_is_a_setting(path: Path) -> None:
    async with opened(path, ScriptedEngine("one two three", n_ctx=20)) as chat:
        await chat.say("/set when_full never")
        await chat.until("when_full is either")
        await chat.press("ctrl+a", "ctrl+k")
        await chat.say("/set --default when_full leave-out")
        await chat.until("in all chats")
        for question in ("a b c d", "e f g h", "i j k l m n"):
            await chat.ask(question)
        await chat.until("one two three", gone="no room")
        assert len(engine_of(chat).asked) == 3


def test_a_question_beyond_the_standard_library_is_known() -> None:
    for question in ("What is the capital of Germany?", "What is 2+2?", "How are you?", "?"):
        assert is_foreign(question)
    for question in ("What does os.path.join do?", "what is `deque` of collections", "help(len)", "json?"):
        assert not is_foreign(question)


@pytest.mark.parametrize("told", ["{", "[" * 100_000, "[[1]]", '[[1, "a", {"x": 1}]]', "3", "[3]"], ids=range(6))
def test_damaged_edits_that_could_be_undone_are_left_out(told: str, tmp_path: Path) -> None:
    store = Store(tmp_path / "chats.db")
    store.set_preference(KEPT, told)
    assert kept(store) == []
    store.close()
