"""Copying from the terminal chat: it is said whether the text is in a clipboard. A real tmux is asked."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyperclip
import pytest

from app.tui.terminal import NOT_PASSED, NOT_TAKEN, copy_to_desktop, obstacle
from tests.support.scripted import ScriptedEngine
from tests.support.tui import chats_path, opened, piloted

path = chats_path
PATIENCE = 30.0  # seconds until tmux has a terminal on a busy machine
Tmux = Callable[..., str]


def no_desktop(text: str) -> None:
    """As pyperclip does it without a clipboard program."""
    raise pyperclip.PyperclipException("no clipboard")


@pytest.fixture
def tmux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tmux]:
    """A tmux as it comes, around this process, and nothing else that copies."""
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    command = ["tmux", "-S", str(tmp_path / "tmux"), "-f", "/dev/null"]
    monkeypatch.delenv("TMUX", raising=False)

    def run(*words: str) -> str:
        return subprocess.run([*command, *words], capture_output=True, text=True, check=True).stdout

    run("new-session", "-d", "sh")
    monkeypatch.setenv("TMUX", f"{tmp_path / 'tmux'},1,0")
    monkeypatch.setattr(pyperclip, "copy", no_desktop)
    yield run
    subprocess.run([*command, "kill-server"], check=False, capture_output=True)


@piloted
async def test_what_tmux_does_not_pass_on_is_said_with_the_remedy(path: Path, tmux: Tmux) -> None:
    async with opened(path, ScriptedEngine("one"), size=(120, 30)) as chat:
        await chat.ask("Q")
        await chat.say("/copy")
        await chat.until(f"The reply is not in the clipboard: {NOT_PASSED}", gone="Copied")
        tmux("set", "-g", "set-clipboard", "on")
        await chat.say("/copy")
        await chat.until("Copied the reply.")


@piloted
async def test_a_desktop_that_takes_it_is_enough(path: Path, tmux: Tmux, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyperclip, "copy", (path.parent / "desktop").write_text)
    async with opened(path, ScriptedEngine("one")) as chat:
        await chat.say("/copy")
        await chat.until("There is no reply.")
        await chat.ask("Q")
        await chat.say("/copy")
        await chat.until("Copied the reply.", gone="not in the clipboard")
        assert (path.parent / "desktop").read_text() == "one"


@pytest.mark.parametrize(("kind", "told"), [("vt100", NOT_TAKEN), ("xterm-256color", "")])
def test_a_terminal_around_tmux_that_takes_no_clipboard_is_said(
    tmux: Tmux, tmp_path: Path, kind: str, told: str
) -> None:
    tmux("set", "-g", "set-clipboard", "on")
    ours, theirs = pty.openpty()
    command = ["tmux", "-S", str(tmp_path / "tmux"), "attach"]
    environment = {name: value for name, value in os.environ.items() if name != "TMUX"} | {"TERM": kind}
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
    ) as client:
        end = time.monotonic() + PATIENCE
        while kind not in tmux("list-clients", "-F", "#{client_termname}") and time.monotonic() < end:
            time.sleep(0.05)
        assert obstacle() == told
        client.kill()
    os.close(ours)
    os.close(theirs)


def test_without_tmux_nothing_is_known_to_be_in_the_way(tmux: Tmux, monkeypatch: pytest.MonkeyPatch) -> None:
    assert obstacle() == NOT_PASSED
    monkeypatch.setenv("PATH", "")  # a tmux that cannot be asked
    assert obstacle() == ""
    monkeypatch.undo()
    monkeypatch.delenv("TMUX", raising=False)
    assert obstacle() == ""


def test_without_a_desktop_nothing_is_copied_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyperclip, "copy", no_desktop)
    assert not copy_to_desktop("text")
    monkeypatch.setattr(pyperclip, "copy", lambda text: None)
    assert copy_to_desktop("text")
