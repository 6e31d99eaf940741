"""Pictures in the terminal chat: named, dropped, shown as a line, kept with the chat, and shown to the model again."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from app.chats import pictures
from app.chats.pictures import UNSEEN
from app.chats.store import Store
from app.tui.attach import pictures_named, told_pictures, unattached
from app.tui.picture_files import named_if_dropped
from runtime.engine import mark_of
from runtime.models.picture import check_picture
from tests.support.pictures import bmp, gif, noise, png
from tests.support.scripted import ScriptedEngine
from tests.support.tui import ChatPilot, chats_path, engine_of, opened, piloted

path = chats_path
PHOTO, OTHER = png(noise(64, 48)), png(noise(20, 10, 1))
LINE = "photo.png, PNG, 64 x 48 pixels"
BLIND = "scripted cannot see pictures, so it gets a note instead."


def seeing(*replies: str) -> ScriptedEngine:
    return ScriptedEngine(*(replies or ("Hello.",)), sees=True)


def asked(chat: ChatPilot) -> list[str]:
    """What the model was asked at last, question by question."""
    return [each.content for each in engine_of(chat).asked[-1][0] if each.role == "user"]


def shown(name: str, data: bytes, text: str) -> str:
    """A question about a picture, as a model gets it."""
    return f"{name}:\n{mark_of(data)}\n\n{text}"


@piloted
async def test_a_named_picture_is_a_line_and_is_shown_to_the_model_in_every_later_question(path: Path) -> None:
    Path("photo.png").write_bytes(PHOTO)
    async with opened(path, seeing(), size=(80, 40)) as chat:
        await chat.paste("What is in @photo.png")
        await chat.until(f"Attached: {LINE}")
        await chat.press("enter")
        await chat.idle()
        await chat.until("What is in @photo.png", f"attached: {LINE}", gone="Attached:")
        assert asked(chat) == [shown("photo.png", PHOTO, "What is in @photo.png")]
        Path("photo.png").unlink()
        await chat.ask("And now?")
        assert asked(chat) == [shown("photo.png", PHOTO, "What is in @photo.png"), "And now?"]
        assert engine_of(chat).seen == [(PHOTO,), (PHOTO,)]
        chat_id = chat.screen.branch.id
    async with opened(path, seeing(), first=chat_id, size=(80, 40)) as chat:
        await chat.until(f"attached: {LINE}")
        await chat.ask("Still?")
        assert engine_of(chat).seen == [(PHOTO,)]
        assert path.stat().st_mode & 0o077 == 0


@piloted
async def test_an_edited_question_and_a_new_reply_have_the_picture_as_it_was(path: Path) -> None:
    Path("photo.png").write_bytes(PHOTO)
    async with opened(path, seeing(), size=(80, 40)) as chat:
        await chat.ask("What is @photo.png")
        Path("photo.png").write_bytes(OTHER)
        await chat.ask("/regenerate")
        assert engine_of(chat).seen[-1] == (PHOTO,)
        await chat.say("/edit")
        Path("photo.png").unlink()
        await chat.type(" like")
        await chat.press("enter")
        await chat.idle()
        await chat.until("@photo.png like", f"attached: {LINE}", "version 2 of 2")
        assert asked(chat) == [shown("photo.png", PHOTO, "What is @photo.png like")]
        assert engine_of(chat).seen[-1] == (PHOTO,)


@piloted
async def test_a_model_without_eyes_gets_a_note_after_a_sentence_and_one_that_sees_gets_the_picture(
    path: Path,
) -> None:
    Path("photo.png").write_bytes(PHOTO)
    async with opened(path, size=(80, 40)) as chat:
        await chat.say("What is @photo.png")
        await chat.until(BLIND, "Enter once more")
        assert engine_of(chat).asked == []
        await chat.press("enter")
        await chat.idle()
        await chat.until(f"attached: {LINE}")
        assert asked(chat) == [f"photo.png:\n{UNSEEN}\n\nWhat is @photo.png"]
        assert engine_of(chat).seen == [()]
        chat_id = chat.screen.branch.id
    async with opened(path, seeing(), first=chat_id) as chat:
        await chat.ask("And now?")
        assert engine_of(chat).seen == [(PHOTO,)]


@piloted
async def test_a_dropped_picture_is_named_and_attached(path: Path, tmp_path: Path) -> None:
    place = tmp_path / "a folder" / "my photo.png"
    place.parent.mkdir()
    place.write_bytes(PHOTO)
    async with opened(path, seeing(), size=(120, 40)) as chat:
        await chat.paste(f"'{place}' ")
        await chat.type("what")
        await chat.press("enter")
        await chat.idle()
        assert asked(chat) == [shown(str(place), PHOTO, f'@"{place}" what')]


def test_dropped_paths_are_read_as_terminals_write_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    one, two = tmp_path / "it's one.png", tmp_path / "two.gif"
    one.write_bytes(PHOTO)
    two.write_bytes(gif())
    (tmp_path / "text.txt").write_text("GIF89a is a format\nBM")
    named, both = f'@"{one}" ', f'@"{one}" @{two} '
    escaped = str(one).replace("'", "\\'").replace(" ", "\\ ")
    quoted = "'" + str(one).replace("'", "'\\''") + "'"
    for text in (
        str(one),
        f"{one}\n",
        escaped,
        quoted,
        f'"{one}"',
        one.as_uri(),
        f"file://localhost{one.as_uri()[7:]}",
    ):
        assert named_if_dropped(text) == named, text
    for text in (f"{quoted} {two} ", f"{one.as_uri()}\r\n{two.as_uri()}\r\n", f"{one}\n{two}"):
        assert named_if_dropped(text) == both, text
    for text in (
        "",
        "text.txt",
        f"see {two}",
        f"{two} text.txt",
        "file://elsewhere/two.gif",
        "a\0b",
        "x" * 9999,
        "~nobody/x",
    ):
        assert named_if_dropped(text) == "", text


def test_a_picture_that_cannot_be_read_is_told_and_a_text_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, data in {
        "cut.png": PHOTO[:-30], "many.gif": gif(2), "w.webp": b"RIFF\xff\0\0\0WEBPVP8 ", "ok.bmp": bmp(noise(4, 4)),
        "x.svg": b"<svg/>", "bm.txt": b"BMW",
    }.items():  # fmt: skip
        Path(name).write_bytes(data)
    assert unattached("@cut.png") == "cut.png is damaged or incomplete, so it is not attached."
    assert unattached("@many.gif") == "many.gif is an animated GIF, so it is not attached."
    assert unattached("@w.webp") == "w.webp is a WebP, which cannot be read, so it is not attached."
    assert unattached("@ok.bmp @x.svg @bm.txt") == ""
    assert told_pictures("@cut.png @ok.bmp @x.svg @bm.txt @none.png") == "ok.bmp, BMP, 4 x 4 pixels"
    assert [each.name for each in pictures_named("@cut.png @ok.bmp @x.svg @bm.txt\n```\n@ok.bmp\n```")] == ["ok.bmp"]
    Path("ok.bmp").write_bytes(bmp(noise(8, 4)))
    assert told_pictures("@ok.bmp") == "ok.bmp, BMP, 8 x 4 pixels"


def stored(store: Store) -> list[str]:
    """The hashes of the stored pictures."""
    return [str(row[0]) for row in store.read("SELECT hash FROM pictures")]


def ask(store: Store, *data: bytes) -> tuple[int, int]:
    """A chat with a question about pictures: its id and the question's."""
    chat = store.new_chat("Q")
    found = {pictures.picture_of("p.png", each, check_picture(each)): each for each in data}
    files = {each.key: file for each, file in found.items()}
    return chat, store.add_message(chat, None, "user", "Q", pictures.facts_of(found), files)


def test_a_picture_is_stored_once_and_goes_with_the_last_message_that_has_it(path: Path) -> None:
    store = Store(path)
    (first, _), (second, question) = ask(store, PHOTO), ask(store, PHOTO, OTHER)
    assert len(stored(store)) == 2
    store.delete(first)
    assert len(stored(store)) == 2
    store.delete_turn(question)
    assert stored(store) == []
    store.close()
    assert PHOTO[60:200] not in path.read_bytes()
    assert second


def test_a_damaged_file_of_chats_keeps_its_whole_pictures(path: Path) -> None:
    store = Store(path)
    _, question = ask(store, PHOTO, OTHER)
    key = stored(store)[0]
    store.write("UPDATE pictures SET data = ? WHERE hash = ?", b"damaged", key)
    store._leave(sqlite3.DatabaseError("malformed"))
    assert len(stored(store)) == 1
    assert len(pictures.pictures_in(store.branch(question)[0].facts)) == 2
    store.close()


@piloted
async def test_an_export_has_the_picture_or_its_name(path: Path) -> None:
    Path("photo.png").write_bytes(PHOTO)
    async with opened(path, seeing()) as chat:
        await chat.ask("What is @photo.png")
        await chat.ask("/export a.md")
        await chat.ask("/export a.json")
    assert f"What is @photo.png\n\n*{LINE}*" in Path("a.md").read_text()
    image, text = json.loads(Path("a.json").read_text())["messages"][0]["content"]
    assert image["image_url"]["url"].startswith("data:image/png;base64,iVBOR")
    assert text == {"type": "text", "text": "What is @photo.png"}
