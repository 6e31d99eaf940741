"""Files named in a question of the terminal chat: reported when they cannot be attached, folded when they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.chats.store import Store
from app.tui.attach import MAX_FILE, attach, unattached, unnamed, without_attached
from tests.support.scripted import ScriptedEngine
from tests.support.tui import ChatPilot, chats_path, engine_of, opened, piloted

path = chats_path
MISSING = "nofile.txt does not exist, so it is not attached."
AGAIN = "Enter once more sends the text without it."


def asked(chat: ChatPilot) -> list[str]:
    """The questions that the model was asked."""
    return [turns[-1].content for turns, _, _ in engine_of(chat).asked]


@piloted
async def test_a_missing_file_is_named_while_it_is_typed_and_sent_as_text_by_a_second_enter(path: Path) -> None:
    async with opened(path) as chat:
        await chat.type("Explain @nofile.txt")
        await chat.until(MISSING, gone=AGAIN)
        await chat.press("enter")
        await chat.until(MISSING, AGAIN)
        assert asked(chat) == []
        await chat.type(" x")  # another text is reported again
        await chat.until(MISSING, gone=AGAIN)
        await chat.press("enter")
        await chat.until(AGAIN)
        await chat.press("enter")
        await chat.idle()
        await chat.until("Hello.", gone="does not exist")
        assert asked(chat) == ["Explain @nofile.txt x"]


@piloted
async def test_while_a_file_is_chosen_its_suggestions_are_shown_and_no_fault(path: Path) -> None:
    Path("note.txt").write_text("x")
    async with opened(path) as chat:
        await chat.type("@note.t")
        await chat.until("note.txt", gone="does not exist")
        await chat.press("tab", "enter")
        await chat.idle()
        assert asked(chat) == ["note.txt:\n```txt\nx\n```\n\n@note.txt"]


@piloted
async def test_a_message_that_waits_is_held_back_too(path: Path) -> None:
    async with opened(path, ScriptedEngine("one [wait]two", "three")) as chat:
        await chat.say("Q")
        await chat.until("one")
        await chat.say("@nofile.txt")
        await chat.until(AGAIN, gone="Sent when the model is free")
        await chat.press("enter")
        await chat.until("Sent when the model is free", gone="does not exist")
        engine_of(chat).go.set()
        await chat.until("three")
        assert asked(chat) == ["Q", "@nofile.txt"]


@piloted
async def test_a_person_and_an_address_are_sent_at_once(path: Path) -> None:
    async with opened(path) as chat:
        await chat.type("Ask @alice or bob@example.com")
        await chat.press("enter")
        await chat.until("No file is called alice, so only the text is sent.")
        await chat.idle()
        assert asked(chat) == ["Ask @alice or bob@example.com"]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("@no/such", "no/such does not exist, so it is not attached."),
        ("(see @nofile.txt).", "nofile.txt does not exist, so it is not attached."),
        ('@"no such.md"', "no such.md does not exist, so it is not attached."),
        ("@~nobodyatall/x.py", "~nobodyatall/x.py does not exist, so it is not attached."),
        ("@src/", "src/ is a folder, so it is not attached."),
        ("See @src!", "src is a folder, so it is not attached."),
        ("@pic.png", "pic.png is not a picture that can be read, so it is not attached."),
        ("@large", "large is larger than 1 MiB, so it is not attached."),
        ("@bad and @no.c", "bad is not UTF-8 text and no.c does not exist, so they are not attached."),
        ("@good.py", ""),
        ("@alice a@b.org @bob@b.org @https://b.org/", ""),
        ("```\n@no.py\n```", ""),
        ("@app.cache\n@app.get('/')\ndef f(): ...", ""),
    ],
)
def test_what_cannot_be_attached_is_named_with_its_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, fault: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("src").mkdir()
    Path("good.py").write_text("@no.such\ndef f(): ...\n")
    Path("bad").write_bytes(b"\xff")
    Path("pic.png").write_bytes(b"\x89PNG\xff")
    Path("large").write_bytes(b"x" * (MAX_FILE + 1))
    assert unattached(text) == fault
    assert unattached(attach(f"{text}\n\nand @good.py")) == fault


def test_a_word_after_an_at_is_reported_unless_it_is_a_file_code_or_an_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("Makefile").write_text("x")
    assert unnamed("Compare @Makefile with @Makefil, @TODO!") == (
        "No file is called Makefil or TODO, so only the text is sent."
    )
    assert unnamed("@Makefile a@b @bob@b.org @https://b.org/ @no.txt\n@cache\ndef f(): ...") == ""


def test_the_text_of_a_file_that_is_gone_is_still_attached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.md").write_text("b.py:\n```py\nx\n```")
    Path("b.py").write_text("x")
    question = attach("Compare @a.md with @b.py")
    Path("a.md").unlink()
    assert unattached(question) == ""
    assert without_attached(question) == "Compare @a.md with @b.py"


@piloted
async def test_an_attached_file_is_a_line_that_unfolds(path: Path) -> None:
    Path("a.py").write_text("\n".join(f"x = {i}" for i in range(40)))
    async with opened(path, size=(80, 60)) as chat:
        await chat.ask("Explain @a.py")
        await chat.until("Explain @a.py", "attached: a.py, 40 lines (Enter on this message)", gone="x = 1")
        await chat.press("shift+tab", "shift+tab", "enter")
        await chat.until("a.py:", "x = 39", gone="attached:")
        await chat.press("enter")
        await chat.until("attached: a.py", gone="x = 39")


@piloted
async def test_a_question_after_a_long_paste_stays_on_screen(path: Path) -> None:
    Path("a.py").write_text("x = 1")
    async with opened(path, size=(80, 40)) as chat:
        await chat.paste("\n".join(f"line {i}." for i in range(60)))
        await chat.type("\nWhat is wrong with @a.py here?")
        await chat.press("enter")
        await chat.idle()
        await chat.until(
            "line 0.", "48 more lines", "What is wrong with @a.py here?", "a.py, 1 line (", gone="line 30."
        )


@piloted
async def test_the_text_of_a_stored_question_is_folded_as_it_was(path: Path) -> None:
    store = Store(path)
    store.add_message(store.new_chat("old"), None, "user", "See @gone.py\n\ngone.py:\n```py\nsecret = 1\n```")
    store.close()
    async with opened(path) as chat:
        await chat.press("ctrl+o", "enter")
        await chat.until("attached: gone.py, 1 line", gone="secret")
