"""Text from outside is decoded, or refused in a sentence: standard input and arguments of the installed command, and
every kind of file that a person writes.
"""

from __future__ import annotations

import codecs
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from app.cli.choices import read_file
from app.cli.serve import ListenOptions
from app.models import distill
from app.models.library import digest_of
from app.settings import read_settings
from app.tui import attach, presets, terminal
from app.tui.dialogs.help_page import read_keymap
from app.tui.written_file import change, take_back
from runtime.core.errors import SettingsError, SlipstreamError
from runtime.core.outside import NotTextError, exact_text, is_text, text_of
from runtime.models.registry import bundled, load_registry
from runtime.training.prompts import from_path
from tests.support.cli import SLIPSTREAM, spawned
from tests.support.serving import open_plain, running
from tests.support.upstream import Elsewhere, as_events, delta, elsewhere, models

TEXT = "Grüße aus Köln, 你好 🦊\nzwei Zeilen"
MARKED = {
    "UTF-8": (b"", "utf8"), "UTF-8 with a mark": (codecs.BOM_UTF8, "utf8"),
    "UTF-16 LE": (codecs.BOM_UTF16_LE, "utf-16-le"), "UTF-16 BE": (codecs.BOM_UTF16_BE, "utf-16-be"),
    "UTF-32 LE": (codecs.BOM_UTF32_LE, "utf-32-le"), "UTF-32 BE": (codecs.BOM_UTF32_BE, "utf-32-be"),
}  # fmt: skip
OTHER = {
    "Latin-1": "Grüße".encode("latin1"), "UTF-16 without a mark": "Hello".encode("utf-16-le"), "PNG": b"\x89PNG\r\n",
    "cut UTF-16": codecs.BOM_UTF16_LE + b"a", "a surrogate": codecs.BOM_UTF16_BE + b"\xd8\x00\x00a", "zeros": b"a\0b",
}  # fmt: skip
READERS: dict[str, tuple[str, Callable[[Path], object]]] = {  # what is written, and what comes of it
    "prediction": ("a: ü\n", read_file),
    "schema": ('{"const": "ü"}', read_file),
    "key": ("sk-ü\n", lambda path: ListenOptions(api_key_file=path).key()),
    "attached": ("x = 'ü'\ny = 2", attach.read),
    "registry": ('[pairs."ü"]\ntarget = "ü.gguf"\n', load_registry),
    "settings": ('model = "ü"\n', read_settings),
    "keymap": ('[keys]\nquit = "ctrl+ü"\n', lambda path: read_keymap(path, ["quit"])),
    "prompts": ("Was heißt das?\n\nUnd was heißt jenes?\n", from_path),
    "template": ("Antworte auf Französisch.\n", lambda path: presets.read_template(path.stem)),
    "manifest": ('{"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": "ü"}]}', digest_of),
}  # fmt: skip
NO_REFUSAL = {"attached": ("", "is not UTF-8 text"), "manifest": ""}  # what they give for other bytes


def encoded(text: str, how: str, end: str = "\n") -> bytes:
    mark, encoding = MARKED[how]
    return mark + text.replace("\n", end).encode(encoding)


@pytest.fixture
def there() -> Iterator[Elsewhere]:
    """A server of which only the requests matter."""
    chat = as_events(delta(content="Yes."), delta("stop"))
    with elsewhere({"/v1/models": models("m"), "/v1/chat/completions": lambda: chat}) as here:
        yield here


def run(there: Elsewhere, *args: str | bytes, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """The command, with these very bytes."""
    command = [*SLIPSTREAM, "run", "-m", there.url, *args]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=120, check=False)


def asked(there: Elsewhere) -> str:
    return str(there.bodies[-1]["messages"][-1]["content"])


@pytest.mark.parametrize(("how", "end"), [*((how, "\r\n") for how in MARKED), ("UTF-8", "\n"), ("UTF-8", "\r")])
def test_standard_input_is_the_prompt_in_any_marked_encoding(how: str, end: str, there: Elsewhere) -> None:
    done = run(there, stdin=encoded(TEXT + "\n", how, end))
    assert (done.returncode, done.stdout) == (0, b"Yes.\n"), done.stderr
    assert asked(there) == TEXT


@pytest.mark.parametrize("data", OTHER.values(), ids=OTHER)
def test_other_bytes_on_standard_input_are_refused_in_a_sentence(data: bytes, there: Elsewhere) -> None:
    done = run(there, "What is this?", stdin=data)
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (1, b"", 1)
    assert b"Standard input cannot be read: it " in done.stderr
    assert there.bodies == []


LATIN = "caf\xe9".encode("latin1")


@pytest.mark.parametrize(
    "args", [["--", LATIN], ["-p", LATIN], ["Q", "--system", LATIN], ["Q", "--stop", "a", "--stop", LATIN],
             ["Q", "--regex", LATIN]],
)  # fmt: skip
def test_an_argument_of_other_bytes_is_refused(args: list[str | bytes], there: Elsewhere) -> None:
    done = run(there, *args)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"not UTF-8" in done.stderr
    assert b"Traceback" not in done.stderr
    assert there.bodies == []


def test_the_name_of_a_file_may_be_any_bytes(tmp_path: Path, there: Elsewhere) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + LATIN))
    path.write_text("Yes.")
    assert run(there, "Q", "--prediction", os.fsencode(path)).returncode == 0
    model = path.with_suffix(".gguf")
    shutil.copy(bundled("demo/draft.gguf"), model)
    done = spawned("run", str(model), "What is a list?", "--max-tokens", "1")
    assert (done.returncode, "UTF-8" in done.stderr) == (0, False), done.stderr


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(presets, "template_folder", lambda: tmp_path)
    return tmp_path / "file.md"


@pytest.mark.parametrize("how", MARKED)
@pytest.mark.parametrize("name", READERS)
def test_a_file_is_the_same_in_any_marked_encoding(name: str, how: str, place: Path) -> None:
    text, read = READERS[name]
    place.write_bytes(text.encode("utf8"))
    expected = read(place)
    assert "ü" in repr(expected) or "ß" in repr(expected) or "ö" in repr(expected)
    for end in ("\n", "\r\n"):
        place.write_bytes(encoded(text, how, end))
        assert read(place) == expected


@pytest.mark.parametrize("data", OTHER.values(), ids=OTHER)
@pytest.mark.parametrize("name", READERS)
def test_a_file_of_other_bytes_is_refused_in_a_sentence(name: str, data: bytes, place: Path) -> None:
    place.write_bytes(data)
    _, read = READERS[name]
    if name in NO_REFUSAL:
        assert read(place) == NO_REFUSAL[name]
        return
    with pytest.raises((SlipstreamError, typer.BadParameter)) as raised:
        read(place)
    told = re.sub(r"\s+", " ", str(raised.value))
    assert str(place) in told or place.stem in told
    assert "UTF-8" in told or "zero bytes" in told


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("how", MARKED)
def test_an_edit_keeps_the_files_encoding(how: str, end: str, tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(before := encoded("x = 'ü'\ny = 2\n", how, end))
    text, fault = attach.read(path)
    assert (text, fault) == ("x = 'ü'\ny = 2", "")
    done = change(path, text, "x = 'ö🦊'\ny = 2")
    assert path.read_bytes() == encoded("x = 'ö🦊'\ny = 2\n", how, end)
    take_back(done)
    assert path.read_bytes() == before


def test_what_an_editor_saved_is_never_lost(tmp_path: Path) -> None:
    path = tmp_path / "message.md"
    path.write_bytes(encoded(TEXT + "\n", "UTF-16 LE", "\r\n"))
    assert terminal.edited(path) == TEXT
    path.write_bytes(LATIN)
    with pytest.raises(SettingsError, match="It is kept in ") as raised:
        terminal.edited(path)
    kept = Path(str(raised.value).rpartition("It is kept in ")[2].rstrip("."))
    assert kept.read_bytes() == LATIN
    shutil.rmtree(kept.parent)


def test_an_answer_that_cannot_be_read_is_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distill, "answer_file", lambda: tmp_path / "answer")
    for data, answer in ((encoded("yes\n", "UTF-16 LE"), "yes"), (LATIN, "")):
        (tmp_path / "answer").write_bytes(data)
        assert distill.answer() == answer


def test_a_request_may_begin_with_a_mark() -> None:
    with running(open_plain) as here:
        body = codecs.BOM_UTF8 + b'{"content": "os"}'
        done = here.client().post("/tokenize", content=body, headers={"content-type": "application/json"})
        assert done.json()["tokens"]


def test_a_cut_text_may_end_within_a_character() -> None:
    data = "ab🦊".encode()
    assert text_of(data[:-1], is_cut=True) == "ab"
    with pytest.raises(NotTextError, match="from byte 3 on"):
        text_of(data[:-1])


@given(st.text(st.characters(exclude_characters="\0\ufeff", exclude_categories=["Cs"])), st.sampled_from(list(MARKED)))
def test_no_character_changes_but_for_line_ends(text: str, how: str) -> None:
    mark, encoding = MARKED[how]
    data = mark + text.encode(encoding)
    assert exact_text(data).removeprefix("\ufeff") == text
    assert text_of(data) == text.replace("\r\n", "\n").replace("\r", "\n")


@given(st.binary())
def test_other_bytes_are_no_text(data: bytes) -> None:
    argument = data.decode("utf8", "surrogateescape")
    assert is_text(argument) == (argument.encode("utf8", "replace") == data)
