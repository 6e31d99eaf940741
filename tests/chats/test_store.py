"""Chats on disk: branches, search, two writers, a killed process, a disk that refuses, a newer format."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from app.chats.database import StoreError
from app.chats.export import as_json, as_markdown
from app.chats.store import Store
from app.chats.titles import title_from, title_of


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "data" / "chats.db")


def ask(store: Store, question: str, answer: str) -> tuple[int, int, int]:
    chat = store.new_chat(question)
    first = store.add_message(chat, None, "user", question)
    second = store.add_message(chat, first, "assistant", "")
    store.update_message(second, answer, {"line": "1 tok/s"})
    return chat, first, second


def test_what_was_said_is_there_after_opening_again(store: Store) -> None:
    chat, _, _ = ask(store, "What is a list?", "A sequence.")
    store.close()
    again = Store(store.path)
    (found,) = again.chats()
    assert (found.id, found.title) == (chat, "What is a list?")
    assert [(each.role, each.content) for each in again.branch(found.leaf)] == [
        ("user", "What is a list?"),
        ("assistant", "A sequence."),
    ]
    assert again.branch(found.leaf)[1].facts == {"line": "1 tok/s"}


def test_only_the_owner_can_read_chats(store: Store) -> None:
    assert store.path.stat().st_mode & 0o077 == 0


def test_another_version_leaves_the_first_one_where_it_is(store: Store) -> None:
    chat, first, second = ask(store, "Q", "one")
    third = store.add_message(chat, first, "assistant", "two")
    assert [each.content for each in store.branch(store.chat(chat).leaf)] == ["Q", "two"]
    assert store.versions(third) == store.versions(second) == [second, third]
    later = store.add_message(chat, third, "user", "more")
    assert store.newest_leaf(third) == later
    assert store.newest_leaf(second) == second


def test_first_questions_are_versions_of_each_other(store: Store) -> None:
    chat, first, _ = ask(store, "Q", "one")
    assert store.versions(store.add_message(chat, None, "user", "Q2")) == [first, first + 2]


def test_search_finds_words_by_their_beginning_in_any_branch(store: Store) -> None:
    chat, first, _ = ask(store, "What is a list?", "An ordered sequence of things.")
    ask(store, "What is a set?", "Things without order.")
    store.add_message(chat, first, "assistant", "A mutable array.")
    assert [found.id for found in store.chats("order sequ")] == [chat]
    assert "sequence" in store.chats("sequence")[0].excerpt
    assert len(store.chats("thing")) == 2
    assert store.chats('"NOT) OR *') == []


def test_search_knows_a_reply_that_grows_and_forgets_a_chat_that_went(store: Store) -> None:
    chat, _, second = ask(store, "Q", "half")
    store.update_message(second, "half an answer")
    assert [found.id for found in store.chats("answer")] == [chat]
    store.delete(chat)
    assert store.chats("answer") == store.chats() == []


def test_two_instances_write_to_one_store(store: Store) -> None:
    other = Store(store.path)
    ask(store, "from one", "a")
    ask(other, "from two", "b")
    assert {chat.title for chat in store.chats()} == {chat.title for chat in other.chats()} == {"from one", "from two"}


def test_a_chat_that_another_instance_deleted_is_named(store: Store) -> None:
    chat, _, second = ask(store, "Q", "A")
    Store(store.path).delete(chat)
    for act in (lambda: store.chat(chat), lambda: store.add_message(chat, second, "user", "more")):
        with pytest.raises(StoreError, match="deleted in another window"):
            act()


def test_a_killed_process_loses_nothing_that_was_written(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    script = f"""
from pathlib import Path; from app.chats.store import Store
store = Store(Path({str(path)!r})); chat = store.new_chat("Q"); message = store.add_message(chat, None, "user", "Q")
reply = store.add_message(chat, message, "assistant", ""); store.update_message(reply, "so far")
print("written", flush=True); input()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"written\n"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    (chat,) = Store(path).chats()
    assert Store(path).branch(chat.leaf)[-1].content == "so far"


def test_a_newer_format_is_refused_with_the_remedy(store: Store) -> None:
    store.close()
    with sqlite3.connect(store.path) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreError, match=r"newer Slipstream \(format 99.*Update"):
        Store(store.path)


def test_what_cannot_be_opened_is_kept_in_memory_and_said(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    path.mkdir()
    store = Store(path)
    assert "in memory only" in store.problem
    ask(store, "Q", "A")
    assert store.chats()[0].title == "Q"


NOTES = b"these are notes, which are no database, but long enough to be read as one" * 40


def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(NOTES)
    with pytest.raises(StoreError, match=r"notes.txt is not a file of chats. Name another one"):
        Store(path)
    assert path.read_bytes() == NOTES
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_no_database_at_the_usual_place_is_put_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "chats.db"
    path.write_bytes(NOTES)
    monkeypatch.setattr("app.chats.store.default_path", lambda: path)
    store = Store(path)
    assert "was damaged: 0 messages could be recovered" in store.remark
    ask(store, "Q", "A")
    store.close()
    (aside,) = tmp_path.glob("chats.db.damaged-*")
    assert aside.read_bytes() == NOTES
    assert [each.title for each in Store(path).chats()] == ["Q"]


def test_of_a_damaged_file_what_can_be_read_is_there(store: Store) -> None:
    chat, leaf = store.new_chat("long", "Be brief."), None
    for i in range(300):
        leaf = store.add_message(chat, leaf, "user" if i % 2 == 0 else "assistant", f"message {i} " * 40)
    store.close()
    size, page = store.path.stat().st_size, 4096
    with store.path.open("r+b") as file:
        for at in range(size // 3 // page, size // 2 // page):
            file.seek(at * page)
            file.write(b"\xaa" * page)
    found = Store(store.path)
    assert "was damaged" in found.remark
    assert found.problem == ""
    (aside,) = store.path.parent.glob("chats.db.damaged-*")
    assert str(aside) in found.remark
    (kept,) = found.chats()
    branch = found.branch(kept.leaf)
    numbers = [int(message.content.split()[1]) for message in branch]
    assert 50 < len(numbers) < 300
    assert numbers == sorted(numbers)
    assert all(message.content == f"message {i} " * 40 for message, i in zip(branch, numbers, strict=True))
    ask(found, "and on", "it goes")
    found.close()
    assert Store(store.path).remark == ""


def test_of_a_file_that_was_cut_off_the_beginning_is_there(store: Store) -> None:
    chat, leaf = store.new_chat("long"), None
    for i in range(300):
        leaf = store.add_message(chat, leaf, "user", f"message {i} " * 40)
    store.close()
    with store.path.open("r+b") as file:
        file.truncate(store.path.stat().st_size // 2)
    found = Store(store.path)
    (kept,) = found.chats()
    assert 50 < len(found.branch(kept.leaf)) < 300
    found.close()


@pytest.mark.parametrize(("at", "n"), [(0, 16), (0, 100), (100, 3996), (0, 4096)])
@pytest.mark.parametrize("is_upgraded", [False, True])
def test_a_file_whose_first_page_is_overwritten_is_read_from_the_second(
    store: Store, at: int, n: int, is_upgraded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.chats.store.default_path", lambda: store.path)
    if is_upgraded:
        store.close()
        with closing(sqlite3.connect(store.path)) as db:
            db.executescript("DROP TABLE kept; DROP TABLE settings; PRAGMA user_version = 1; VACUUM;")
        store = Store(store.path)
    chats = [ask(store, title, f"about {title} " * 40)[0] for title in ("one", "two", "three")]
    store.set_settings(chats[0], {"seed": 1})
    store.close()
    with store.path.open("r+b") as file:
        file.seek(at)
        file.write(b"\xaa" * n)
    found = Store(store.path)
    assert "6 messages could be recovered" in found.remark
    assert [each.title for each in found.chats()] == ["three", "two", "one"]
    assert found.branch(found.chats()[2].leaf)[1].content == "about one " * 40
    assert is_upgraded or found.settings(chats[0]) == {"seed": 1}
    aside = min(store.path.parent.glob("chats.db.damaged-*"))
    assert aside.read_bytes()[at : at + n] == b"\xaa" * n
    found.close()


@pytest.mark.parametrize("seed", range(12))
def test_whatever_is_overwritten_the_store_opens_and_goes_on(store: Store, seed: int) -> None:
    for title in ("one", "two"):
        chat, leaf = store.new_chat(title), None
        for i in range(60):
            leaf = store.add_message(chat, leaf, "user", f"message {i} " * 40)
    store.close()
    data, chance = bytearray(store.path.read_bytes()), random.Random(seed)
    for _ in range(3):
        at, n = chance.randrange(100, len(data)), chance.choice((1, 8, 100, 4096))
        data[at : at + n] = chance.randbytes(min(n, len(data) - at))
    store.path.write_bytes(data)
    found = Store(store.path)
    for each in found.chats():
        found.branch(each.leaf)
        found.settings(each.id)
    ask(found, "and on", "it goes")
    assert not found.problem or "is damaged" in found.problem
    found.close()


def test_a_file_that_is_damaged_while_it_is_open_ends_nothing(store: Store) -> None:
    chat, leaf = store.new_chat("long"), None
    for i in range(300):
        leaf = store.add_message(chat, leaf, "user", f"message {i} " * 40)
    store.close()
    open_one = Store(store.path)
    open_one._db.execute("PRAGMA cache_size = 1")  # what is not kept is read from the file
    open_one._db.execute("PRAGMA shrink_memory")
    with store.path.open("r+b") as file:
        file.seek(4096 * 20)
        file.write(b"\xaa" * 4096 * 20)
    assert 0 < len(open_one.branch(leaf)) <= 300
    ask(open_one, "Q", "A")
    assert "is damaged" in open_one.problem


def test_a_disk_that_fails_later_leaves_everything_in_memory(store: Store) -> None:
    ask(store, "before", "A")
    assert store.problem == ""
    store._db.execute("PRAGMA query_only = ON")  # what SQLite says then is what it says of a read-only disk
    chat, _, _ = ask(store, "after", "B")
    assert "in memory only" in store.problem
    assert [each.title for each in store.chats()] == ["after", "before"]
    assert store.branch(store.chat(chat).leaf)[-1].content == "B"


def test_after_a_full_disk_all_is_written_once_there_is_room(store: Store) -> None:
    ask(store, "before", "A")
    file = store._db
    file.execute("PRAGMA query_only = ON")
    ask(store, "after", "B")
    assert "saved as soon as that works" in store.problem
    file.execute("PRAGMA query_only = OFF")
    store.close()
    again = Store(store.path)
    assert [each.title for each in again.chats()] == ["after", "before"]
    assert again.branch(again.chats()[0].leaf)[-1].content == "B"


def fill(store: Store) -> None:
    """Has SQLite find that there is no room for more than there is."""
    store._db.execute("PRAGMA max_page_count = 1")


def test_what_a_full_disk_has_no_room_for_is_kept_elsewhere(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ask(store, "before", "A")
    fill(store)
    ask(store, "after", "B" * 100_000)
    assert "disk is full" in store.problem
    store.close()
    (kept,) = tmp_path.glob("slipstream-*/chats.db")
    assert str(kept) in store.problem
    assert [each.title for each in Store(kept).chats()] == ["after", "before"]


def test_what_was_kept_nowhere_is_said_to_be_lost(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(store, "before", "A")
    fill(store)
    ask(store, "after", "B" * 100_000)
    assert "disk is full" in store.problem
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    store.close()
    assert "are lost" in store.problem


def test_what_another_window_wrote_meanwhile_is_not_written_over(store: Store) -> None:
    ask(store, "before", "A")
    file = store._db
    file.execute("PRAGMA query_only = ON")
    ask(store, "after", "B")
    file.execute("PRAGMA query_only = OFF")
    other = Store(store.path)
    ask(other, "elsewhere", "C")
    store.close()
    assert [each.title for each in other.chats()] == ["elsewhere", "before"]
    (beside,) = store.path.parent.glob("chats-*.db")
    assert [each.title for each in Store(beside).chats()] == ["after", "before"]


def test_prompts_come_oldest_first_and_once(store: Store) -> None:
    for text in ("one", "two", "one"):
        ask(store, text, "A")
    assert store.prompts() == ["two", "one"]


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("\n  First line\nsecond", "First line"),
        ("Mend this:\n```python\ndef f(x):\n    pass\n```", "Mend this: def f(x):"),
        ("Mend this:", "Mend this:"),
        ("word " * 30, "word word word word word word word word word …"),
        ("I " + "x" * 99, "I " + "x" * 45 + "…"),
        (" ", "New chat"),
    ],
)
def test_a_chat_is_titled_by_its_first_line(text: str, title: str) -> None:
    assert title_of(text) == title


@pytest.mark.parametrize(
    ("reply", "title"),
    [
        ("Boiling eggs", "Boiling eggs"),
        ('**Title: "Eggs, boiled well"**\n\nThis title', "Eggs, boiled well"),
        ("Eggs that are boiled well, and whatever else could be told of them", "Eggs that are boiled well"),
        ("Sure! Here is a title for this conversation: Boiling Eggs", ""),  # an answer, not a title
        ("The history of France", ""),
        ("Eggs", ""),
        ('Boil eggs: ["well", "done"]', ""),
        ("WELL DONE", "well done"),
        ("", ""),
    ],
)
def test_a_title_of_a_model_is_taken_where_it_is_one(reply: str, title: str) -> None:
    assert title_from(reply, "How do I boil eggs that are well done?") == title


def test_exports_hold_the_branch_and_the_system_prompt(store: Store) -> None:
    chat, first, _ = ask(store, "Q", "old")
    store.add_message(chat, first, "assistant", "new")
    store.set_system(chat, "Be brief.")
    facts, messages = store.chat(chat), store.branch(store.chat(chat).leaf)
    assert as_markdown(facts, messages) == "# Q\n\n> Be brief.\n\n## You\n\nQ\n\n## Reply\n\nnew\n"
    assert json.loads(as_json(facts, messages))["messages"] == [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Q"}, {"role": "assistant",
        "content": "new"},
    ]  # fmt: skip


def test_a_store_of_the_first_format_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    store = Store(path)
    store.add_message(store.new_chat("kept"), None, "user", "hello")
    store.close()
    with sqlite3.connect(path) as db:
        db.executescript("DROP TABLE kept; PRAGMA user_version = 1;")
    db.close()
    store = Store(path)
    store.set_preference("theme", "textual-light")
    assert (store.preference("theme"), store.preference("none")) == ("textual-light", "")
    assert store.chats()[0].title == "kept"
    store.close()
