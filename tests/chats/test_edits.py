"""A reply's block is known as the edited file, and written to it: whole, with its line ends, where it is as it was."""

from __future__ import annotations

import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.chats.store import StoredMessage
from app.tui.attach import attach, attached_in
from app.tui.edits import ACCEPTED, Edit, edits_in, expected_in, files_in, last_edits
from app.tui.written_file import change, take_back
from runtime.core.errors import SettingsError

FILE = "def area(width, height):\n    return width * height\n\n\nprint(area(2, 3))"
EDITED = FILE.replace("area", "size")


def block(text: str, kind: str = "python") -> str:
    return f"Here it is:\n\n```{kind}\n{text}\n```\n\nThat is all."


def turns(*texts: str, **facts: object) -> list[StoredMessage]:
    roles = ("user", "assistant")
    return [StoredMessage(i, i - 1, roles[i % 2], text, dict(facts) if i % 2 else {}) for i, text in enumerate(texts)]


def test_what_was_attached_is_found_again_in_the_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    texts = {"a.py": FILE, "b c.md": "Text\n````\ncode\n````", "empty.txt": ""}
    for name, text in texts.items():
        Path(name).write_text(text + "\n" * bool(text))
    question = attach('Look at @a.py, @"b c.md" and @empty.txt. Not at @nobody.')
    assert attached_in(question) == texts
    assert attached_in("Look at @a.py") == {}


def test_the_edited_file_is_the_block_that_is_most_like_it() -> None:
    reply = f"Use it so:\n\n```\nsize(1, 2)\n```\n\n{block(EDITED)}"
    assert edits_in(reply, {"a.py": FILE}) == [Edit("a.py", FILE, EDITED)]
    assert edits_in(EDITED, {"a.py": FILE}) == [Edit("a.py", FILE, EDITED)]
    assert edits_in(f"<think>{block(FILE + '!')}</think>{block(EDITED)}", {"a.py": FILE})[0].after == EDITED
    other = "first\nsecond\nthird"
    both = block(EDITED) + "\n\n" + block(other + "\nfourth", "")
    assert [edit.path for edit in edits_in(both, {"o.txt": other, "a.py": FILE})] == ["o.txt", "a.py"]
    assert edits_in(block("x = 2"), {"x.py": "x = 1"}) == [Edit("x.py", "x = 1", "x = 2")]


README = "# Title\n\n```sh\nmake\n```\n\nSome words.\n\n```sh\nmake test\n```\n\nThe end."
RENAMED = README.replace("Some", "Other")


@pytest.mark.parametrize(
    "reply",
    [
        block(RENAMED, "markdown"),
        f"Run this before:\n\n```sh\ncd here\n```\n\n{block(RENAMED, 'md')}\n\nThen:\n\n```sh\nmake all\n```\n",
        f"````markdown\n{RENAMED}\n````\n\nOnly one word is another:\n\n```\nOther words.\n```",
        f"~~~\n{RENAMED}\n~~~",
        RENAMED,
        f"Here is the file:\n\n{RENAMED}\n\nI changed one word.",
    ],
)
def test_a_file_that_has_fences_itself_is_taken_whole(reply: str) -> None:
    assert edits_in(reply, {"README.md": README}) == [Edit("README.md", README, RENAMED)]


@pytest.mark.parametrize(
    "reply",
    [
        "Only this line changes:\n\n```sh\nmake check\n```",
        "Write it so:\n\n```sh\n" + "cc -o program main.c util.c\n" * 9 + "strip program\n```",
        f"Here is the file:\n\n{RENAMED}, nearly.",
        README,
    ],
)
def test_a_block_out_of_such_a_file_is_no_edit_of_it(reply: str) -> None:
    text = README.replace("make\n", "cc -o program main.c util.c\n" * 9)
    assert edits_in(reply, {"README.md": text if "strip" in reply else README}) == []


def test_neither_the_same_nor_a_part_nor_something_else_is_an_edit() -> None:
    long = "\n".join(f"line {i}" for i in range(40)) + "\n" + FILE
    assert edits_in(block(FILE), {"a.py": FILE}) == []
    assert edits_in(block(EDITED), {"a.py": long}) == []
    assert edits_in("It computes an area. " * 8, {"a.py": FILE}) == []


def test_a_diff_tells_what_goes_and_comes_and_what_is_left_out() -> None:
    edit = Edit("a.py", FILE, EDITED)
    assert edit.counts == (2, 2)
    assert edit.diff[:3] == ["@@ -1,5 +1,5 @@", "-def area(width, height):", "+def size(width, height):"]
    assert not edit.leaves_out
    assert Edit("a.py", FILE, "def size(w, h):\n    # ... rest of the code unchanged").leaves_out


def test_a_reply_that_did_not_end_edits_nothing() -> None:
    question = f"Rename it in @a.py\n\na.py:\n```py\n{FILE}\n```"
    assert [edit.after for edit in last_edits(turns(question, block(EDITED)))] == [EDITED]
    assert last_edits(turns(question, block(EDITED), end="cut off")) == []
    assert last_edits(turns(question, block(EDITED), **{ACCEPTED: ["a.py"]})) == []


def test_the_file_of_a_later_question_is_as_it_was_accepted() -> None:
    question, again = f"Rename it in @a.py\n\na.py:\n```py\n{FILE}\n```", EDITED.replace("width", "w")
    accepted = turns(question, block(EDITED), "And width", block(again), **{ACCEPTED: ["a.py"]})
    assert files_in(accepted[:3]) == {"a.py": EDITED}
    left = turns(question, block(EDITED), "And width")
    assert files_in(left) == {"a.py": FILE}


def test_a_reply_is_expected_to_repeat_the_file_that_is_asked_about() -> None:
    question = f"Rename it in @a.py\n\na.py:\n```py\n{FILE}\n```"
    assert expected_in(turns(question)) == f"```py\n{FILE}\n```"
    assert expected_in(turns(question, block(EDITED), "And width")) == f"```py\n{EDITED}\n```"
    assert expected_in(turns(question, "I cannot.", "Why?")) == ""
    assert expected_in([]) == ""


@pytest.mark.parametrize(
    ("said", "written"),
    [
        ("a\nb\nc\n", "a\nB\nc\n"),
        ("a\r\nb\r\nc\r\n", "a\r\nB\r\nc\r\n"),
        ("a\r\nb\nc\n", "a\r\nB\nc\n"),
        ("\ufeffa\nb\nc\n\n", "\ufeffa\nB\nc\n\n"),
    ],
)
def test_line_ends_and_the_end_of_the_file_stay_and_can_be_had_back(tmp_path: Path, said: str, written: str) -> None:
    path = tmp_path / "x.txt"
    path.write_bytes(said.encode())
    done = change(path, "a\nb\nc", "a\nB\nc")
    assert path.read_bytes() == written.encode()
    take_back(done)
    assert path.read_bytes() == said.encode()


def test_an_empty_file_gets_lines_that_end(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_bytes(b"")
    change(path, "", "one\ntwo")
    assert path.read_bytes() == b"one\ntwo\n"


def test_permissions_stay_and_links_are_followed(tmp_path: Path) -> None:
    path, link = tmp_path / "run.sh", tmp_path / "link"
    path.write_text("echo a\n")
    path.chmod(0o751)
    link.symlink_to(path)
    change(link, "echo a", "echo b")
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode), link.is_symlink()) == ("echo b\n", 0o751, True)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link", "run.sh"]


def refused(path: Path, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        change(path, "a", "b")


def test_a_file_that_is_otherwise_than_it_was_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    refused(path, "not there any more")
    path.write_text("other\n")
    refused(path, "has changed since")
    path.write_bytes(b"\xff\xe9")
    refused(path, "no UTF-8")
    refused(tmp_path, "cannot be read")
    path.write_text("a\n")
    path.chmod(0o444)
    refused(path, "may only be read")
    assert path.read_text() == "a\n"


@contextmanager
def no_room() -> Iterator[None]:
    """No file may be longer than a few bytes: what a full disk says, too, comes while it is written."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_what_cannot_be_written_whole_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("a\n")
    # The test runner's own output may be a file, so the limit holds for this alone
    with no_room(), pytest.raises(SettingsError, match=r"cannot be written .* It is as it was"):
        change(path, "a", "a much longer line than that")
    assert path.read_text() == "a\n"
    assert [each.name for each in tmp_path.iterdir()] == ["x.txt"]


def test_an_edit_is_not_taken_back_over_later_work(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("a\n")
    done = change(path, "a", "b")
    path.write_text("b and more\n")
    with pytest.raises(SettingsError, match="has changed since"):
        take_back(done)
    assert path.read_text() == "b and more\n"
