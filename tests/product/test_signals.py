"""Signals that end a program: it ends by them, with its terminal as it was before and what was done so far kept."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from app.chats.store import Store
from tests.models.test_hub_nonsense import is_for_content, whole_hub
from tests.support.cli import QUESTION, SLIPSTREAM
from tests.support.pseudo_terminal import PseudoTerminal
from tests.support.quick import others_slow
from tests.support.raw_hub import answering
from tests.support.waiting import wait_for

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
ONE_QUICK = others_slow(SIGNALS, (signal.SIGTERM,))
F7 = "\x1b[18~"


class Chat(PseudoTerminal):
    """The chat with the bundled pair, whose replies do not end soon."""

    def __init__(self, folder: Path, **env: str) -> None:
        self.chats, self.temporary = folder / "chats.db", folder / "tmp"
        self.temporary.mkdir()
        args = "--threads", "1", "--chats", str(self.chats), "--temperature", "5", "--seed", "1"
        super().__init__([*SLIPSTREAM, "chat", *args], os.environ | {"TMPDIR": str(self.temporary)} | env)

    def ask(self) -> None:
        """Ask, and wait until a part of the reply is kept."""
        self.until("demo is ready")
        self.keys(f"{QUESTION}\r")
        wait_for(lambda: self.kept()[1:] and self.kept()[1])

    def kept(self) -> list[str]:
        """The messages of the latest chat."""
        with closing(Store(self.chats)) as store:
            return [message.content for chat in store.chats()[:1] for message in store.branch(chat.leaf)]


@pytest.fixture
def chat(tmp_path: Path) -> Iterator[Chat]:
    with closing(Chat(tmp_path)) as here:
        yield here


@pytest.mark.parametrize("number", ONE_QUICK)
def test_a_chat_leaves_its_terminal_and_its_reply_in_order(chat: Chat, number: signal.Signals) -> None:
    chat.ask()
    so_far = chat.kept()[1]
    chat.process.send_signal(number)
    assert (chat.ended(), chat.left_on()) == (-number, [])
    question, reply = chat.kept()
    assert question == QUESTION
    assert reply.startswith(so_far)
    assert not list(chat.temporary.iterdir())


@pytest.mark.slow
def test_a_chat_whose_terminal_is_closed_ends_and_keeps_its_reply(chat: Chat) -> None:
    chat.ask()
    so_far = chat.kept()[1]
    chat.hang_up()
    assert chat.ended() == -signal.SIGHUP
    assert chat.kept()[1].startswith(so_far)


@pytest.mark.slow
@pytest.mark.parametrize("number", SIGNALS)
def test_a_chat_that_is_loading_leaves_its_terminal_in_order(chat: Chat, number: signal.Signals) -> None:
    wait_for(lambda: "\x1b[?1049h" in chat.shown)
    chat.process.send_signal(number)
    assert (chat.ended(), chat.left_on()) == (-number, [])


def asleep(chat: Chat) -> list[psutil.Process]:
    """The processes below the chat that sleep, as its editor does."""
    return [each for each in psutil.Process(chat.process.pid).children() if "sleep" in each.name()]


@pytest.mark.slow
def test_an_editor_ends_with_the_chat_that_began_it(tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\necho it edits\nexec sleep 600\n", encoding="utf8")
    editor.chmod(0o700)
    with closing(Chat(tmp_path, VISUAL=str(editor))) as chat:
        chat.until("demo is ready")
        chat.keys(F7)
        chat.until("it edits")
        wait_for(lambda: asleep(chat))  # the script prints before it becomes `sleep`
        (sleeping,) = asleep(chat)
        chat.process.send_signal(signal.SIGINT)  # which is the editor's
        chat.process.send_signal(signal.SIGTERM)
        assert (chat.ended(), chat.left_on()) == (-signal.SIGTERM, [])
        assert not sleeping.is_running()
        assert not list(chat.temporary.iterdir())


@pytest.mark.parametrize("number", ONE_QUICK)
def test_the_cursor_is_shown_again_after_loading_was_broken_off(number: signal.Signals) -> None:
    with closing(PseudoTerminal([*SLIPSTREAM, "run", QUESTION, "--threads", "1"], os.environ)) as run:
        wait_for(lambda: "\x1b[?25l" in run.shown)
        run.process.send_signal(number)
        assert run.ended() in (-number, 0)  # 0: the reply had ended before
        assert run.left_on() == []


@pytest.mark.slow
@pytest.mark.parametrize("number", SIGNALS)
def test_the_cursor_is_shown_again_after_a_measurement_was_broken_off(number: signal.Signals) -> None:
    command = [*SLIPSTREAM, "bench", "--quick", "--runs", "10000", "--drafters", "none"]
    with closing(PseudoTerminal(command, os.environ)) as bench:
        wait_for(lambda: "\x1b[?25l" in bench.shown)
        bench.process.send_signal(number)
        if number == signal.SIGINT:  # which a terminal sends to both processes
            psutil.Process(bench.process.pid).children()[0].send_signal(number)
        assert (bench.ended(), bench.left_on()) == (-number, [])


@pytest.mark.slow
@pytest.mark.parametrize("number", SIGNALS)
def test_the_cursor_is_shown_again_after_a_download_was_broken_off(tmp_path: Path, number: signal.Signals) -> None:
    with answering(lambda asked: whole_hub(asked, b"x" * 99), drip=1.0, drips=is_for_content) as endpoint:
        places = {"HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
        with closing(PseudoTerminal([*SLIPSTREAM, "models", "pull", "owner/small"], os.environ | places)) as pull:
            wait_for(lambda: "\x1b[?25l" in pull.shown)
            pull.process.send_signal(number)
            assert (pull.ended(), pull.left_on()) == (-number, [])


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_ctrl_c_ends_the_loop_of_a_shell_and_its_code_is_130() -> None:
    """Other than after an exit code, a shell ends its script after a command that ended by the signal."""
    endless = ["--temperature", "5", "--seed", "1", "--max-tokens", "100000"]
    command = shlex.join([*SLIPSTREAM, "run", QUESTION, "--threads", "1", *endless])
    script = f"for i in 1 2; do {command}; echo then $i $?; done"
    with closing(PseudoTerminal(["bash", "-c", script], os.environ)) as shell:
        wait_for(lambda: "\x1b[?25h" in shell.shown)  # the model is loaded
        shell.keys("\x03")
        assert shell.ended() in (130, -signal.SIGINT)
        assert "then" not in shell.text


def test_a_terminal_that_only_prints_lines_is_told_the_remedy() -> None:
    with closing(PseudoTerminal(["env", "TERM=dumb", *SLIPSTREAM], os.environ)) as dumb:
        assert dumb.ended() == 1
        dumb.until("TERM=dumb", "slipstream run")
        assert "\x1b" not in dumb.shown
