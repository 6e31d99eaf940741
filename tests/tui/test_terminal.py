"""The chat in a real terminal, by real keys: tmux holds the terminal, the bundled pair answers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from app.tui.between_replies import SAVE
from bench.instruments.servers import free_port
from tests.support.waiting import PATIENCE, wait_for

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


class Terminal:
    """A shell in tmux, and the chat in it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.socket = folder, str(folder / "tmux")

    def tmux(self, *words: str) -> str:
        return subprocess.run(
            ["tmux", "-S", self.socket, "-f", "/dev/null", *words], capture_output=True, text=True, check=True
        ).stdout

    def begin(self, width: int, height: int) -> None:
        self.tmux("new-session", "-d", "-x", str(width), "-y", str(height), "-c", str(ROOT), "env PS1='sane$ ' sh")

    def chat(self, *more: object) -> None:
        self.line(
            " ".join(map(str, (sys.executable, "-m app.cli chat --threads 1 --chats", self.folder / "c.db", *more)))
        )

    def line(self, text: str) -> None:
        self.tmux("send-keys", "-l", text)
        self.keys("Enter")

    def keys(self, *names: str) -> None:
        self.tmux("send-keys", *names)

    def seen(self) -> str:
        return self.tmux("capture-pane", "-p")

    def until(self, *words: str) -> None:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if all(word in " ".join(self.seen().split()) for word in words):
                return
            time.sleep(0.1)
        raise AssertionError(f"{words} did not come. On the screen:\n{self.seen()}")

    def state(self) -> str:
        """Alternate screen, mouse reporting, cursor: as a shell wants them it is 0 0 1."""
        return self.tmux("display-message", "-p", "#{alternate_on} #{mouse_any_flag} #{cursor_flag}").strip()


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    os.environ.pop("TMUX", None)
    here = Terminal(tmp_path)
    yield here
    subprocess.run(["tmux", "-S", here.socket, "kill-server"], check=False, capture_output=True)


def test_a_question_is_typed_answered_stopped_and_the_terminal_left_as_it_was(terminal: Terminal) -> None:
    terminal.begin(80, 24)
    terminal.until("sane$")
    before = terminal.tmux("display-message", "-p", "#{pane_tty}").strip()
    modes = subprocess.run(["stty", "-F", before, "-a"], capture_output=True, text=True, check=True).stdout
    terminal.chat("--trace", terminal.folder / "trace")
    terminal.until("demo is ready")
    terminal.line("What does os.path.join do?")
    terminal.until("Join two or more pathname components", "tok/s")
    assert {"sequence": 1, "step": 1}.items() <= json.loads(
        (terminal.folder / "trace").read_text().split("\n")[0]
    ).items()
    terminal.keys("Escape")
    terminal.line("/set temperature 2")
    terminal.until("temperature is 2")
    terminal.tmux("resize-window", "-x", "20", "-y", "5")
    terminal.tmux("resize-window", "-x", "100", "-y", "30")
    terminal.until("Join two or more pathname components")
    terminal.keys("C-q")
    terminal.until("sane$")
    assert terminal.state() == "0 0 1"
    assert (
        subprocess.run(["stty", "-F", before, "-a"], capture_output=True, text=True, check=True).stdout.split(";")[3:]
        == modes.split(";")[3:]
    )
    terminal.line("echo still $((6 * 7))")
    terminal.until("still 42")


def test_after_ctrl_c_twice_the_chat_is_kept(terminal: Terminal) -> None:
    terminal.begin(80, 24)
    terminal.until("sane$")
    terminal.chat()
    terminal.until("demo is ready")
    terminal.line("What does json.dumps do?")
    terminal.until("tok/s")
    terminal.keys("C-c")
    terminal.until("Press Ctrl+C again")
    terminal.keys("C-c")
    terminal.until("sane$")
    assert terminal.state() == "0 0 1"
    terminal.chat()
    terminal.until("demo is ready")
    terminal.keys("C-o")
    terminal.until("What does json.dumps do?")


def test_the_persons_own_editor_has_the_terminal_and_gives_it_back(terminal: Terminal) -> None:
    editor = terminal.folder / "editor"
    editor.write_text("#!/bin/sh\necho ' there' >> \"$1\"\n", encoding="utf8")
    editor.chmod(0o700)
    terminal.begin(80, 24)
    terminal.until("sane$")
    terminal.line(f"export VISUAL={editor}")
    terminal.chat()
    terminal.until("demo is ready")
    terminal.tmux("send-keys", "-l", "hello")
    terminal.until("hello")
    terminal.keys("F7")
    terminal.until("hello there")


def test_a_chat_shares_the_model_of_the_server_that_runs_already(terminal: Terminal) -> None:
    port = free_port()
    terminal.begin(100, 24)
    terminal.line(f"{sys.executable} -m app.cli serve demo --threads 1 --quiet --port {port} &")
    terminal.until("everything fits")
    terminal.line(f"{sys.executable} -m app.cli chat --attach --port {port} --chats {terminal.folder / 'chats.db'}")
    terminal.until(f"127.0.0.1:{port} is ready")
    terminal.line("What does os.path.join do?")
    terminal.until("Join two or more pathname components", "tok/s")
    terminal.keys("C-q")
    terminal.until("sane$")
    terminal.line("kill %1; wait; echo left $((6 * 7))")  # or it outlives the terminal
    terminal.until("left 42")


def test_what_was_typed_is_there_again_after_the_window_was_closed(terminal: Terminal) -> None:
    terminal.begin(80, 24)
    terminal.chat()
    terminal.until("demo is ready")
    terminal.tmux("send-keys", "-l", "half a sentence")
    terminal.until("half a sentence")
    time.sleep(2 * SAVE)
    terminal.tmux("new-session", "-d", "-s", "other", "-x", "80", "-y", "24", "-c", str(ROOT), "sh")
    terminal.tmux("kill-session", "-t", "0")
    terminal.chat()
    terminal.until("demo is ready", "half a sentence")


def test_a_chat_that_is_stopped_goes_on_and_a_stopped_one_can_be_ended(terminal: Terminal) -> None:
    terminal.begin(80, 24)
    terminal.until("sane$")
    terminal.chat()
    terminal.until("demo is ready")
    terminal.keys("C-z")
    terminal.until("sane$")
    assert terminal.state() == "0 0 1"
    terminal.line("fg")
    terminal.until("demo is ready")
    terminal.line("What does os.path.join do?")
    terminal.until("Join two or more pathname components", "tok/s")
    terminal.keys("C-z")
    terminal.until("sane$")
    terminal.line("clear; kill %1; kill -CONT %1")  # which `kill` of other shells does itself
    chats = str(terminal.folder / "c.db")
    wait_for(lambda: not any(chats in (each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"])))
    assert terminal.state() == "0 0 1"
    terminal.line("echo still $((6 * 7))")
    terminal.until("still 42")
