"""A chat whose model is on another server: every command and key works, or says in a sentence why it cannot.

The server is `slipstream serve` in a process of its own, on the bundled pair.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from textual.binding import Binding

from app.models.seeking import opener
from app.tui.chat_screen import ChatScreen
from app.tui.commands import COMMANDS
from app.tui.widgets.message_view import MessageView
from bench.instruments.servers import free_port
from runtime.models.registry import Pair, upstream_pair
from tests.support.quick import others_slow
from tests.support.tui import ChatPilot, chats_path, opened, piloted
from tests.support.waiting import wait_for

path = chats_path

QUESTION = "What does os.path.join do?"
WROTE = "Join two or more"
# What is typed and what is seen then, by command
TYPED = {
    "help": [("/help", "Keys and commands")],
    "why": [("/why", "decides about drafts itself")],
    "tokens": [("/tokens", WROTE)],
    "panel": [("/panel", WROTE)],
    "chats": [("/chats", "Ctrl+D twice deletes")],
    "new": [("/new", "new chat")],
    "model": [
        ("/model", "▸ 127.0.0.1"),
        ("/model demo", "demo is ready"),
        ("/model nothing", "There is no model 'nothing'"),
    ],
    "pull": [("/pull", "Name what to fetch")],
    "regenerate": [("/regenerate", "version 2 of 2")],
    "compare": [("/compare", "On this machine"), ("/compare demo", "1 or 2 keeps")],
    "continue": [("/continue", WROTE)],
    "room": [("/room", "The oldest turns are left out when the context is full")],
    "context": [("/context", "tokens, such as 8192 or 8k"), ("/context 4096", "is set there")],
    "delete-turn": [("/delete-turn", "are deleted for good")],
    "diff": [("/diff", "so it is not a whole file")],
    "undo": [("/undo", "there is nothing to undo")],
    "edit": [("/edit", "Editing: Enter branches the chat here")],
    "copy": [("/copy", "Copied the reply."), ("/copy code", "There is no code block.")],
    "system": [("/system", "System prompt"), ("/system be brief", "The next reply follows this system prompt.")],
    "template": [("/template", "There is no template yet"), ("/template nothing", "There is no template 'nothing'")],
    "rename": [("/rename", "Rename chat"), ("/rename Paths", "Slipstream · 127.0.0.1")],
    "export": [("/export out.md", "Written to")],
    "set": [("/set seed 7", "seed 7"), ("/set", "Settings: 127.0.0.1")],
    "settings": [("/settings", "the other server")],
    "preset": [
        ("/preset", "There is no preset yet."),
        ("/preset save far", "/preset far uses it."),
        ("/preset far", "far: http://127.0.0.1"),
    ],
    "history": [("/history", "Your earlier questions")],
    "editor": [("/editor", "os.path")],
    "theme": [("/theme", WROTE)],
    "serve": [("/serve {folder}/s.sock", "Editor access is on at"), ("/serve off", "Editor access is off.")],
    "log": [("/log", "loaded 127.0.0.1")],
    "quit": [("/quit", "")],
}

QUICK = {"model"}


@pytest.fixture(scope="module")
def remote() -> Iterator[Pair]:
    """The model of a server that runs elsewhere."""
    port = free_port()
    command = [sys.executable, "-m", "app.cli", "serve", "demo", "--threads", "1", "--quiet", "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: is_ready(port))
        yield upstream_pair(f"http://127.0.0.1:{port}")
    finally:
        server.terminate()
        server.wait()


def is_ready(port: int) -> bool:
    try:
        return httpx2.get(f"http://127.0.0.1:{port}/health").status_code == 200
    except httpx2.HTTPError:
        return False


async def begun(chat: ChatPilot) -> None:
    """Has the model answered once."""
    await chat.ask(QUESTION)
    await chat.until(WROTE)


@pytest.mark.parametrize("name", others_slow(TYPED, QUICK))
def test_a_command_works_or_says_why_it_cannot(
    name: str, path: Path, remote: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VISUAL", "true")

    @piloted
    async def run() -> None:
        async with opened(path, *[opener("none")] * 3, pair=remote, given={"max_tokens": 8}, size=(140, 40)) as chat:
            await begun(chat)
            for text, shown in TYPED[name]:
                await chat.say(text.format(folder=path.parent))
                if name == "quit":
                    await chat.pilot.pause()
                    return
                await chat.until(shown)
                await chat.press("escape")
            await chat.idle()
            await chat.press("escape")
            await begun(chat)

    run()


def keys_of(owner: type[ChatScreen | MessageView]) -> list[str]:
    """Every key of the chat or of a message, but for those that leave."""
    keys = [key for each in owner.BINDINGS if isinstance(each, Binding) for key in each.key.split(",")]
    return [key for key in keys if key not in ("ctrl+q", "ctrl+d")]


async def settled(chat: ChatPilot) -> None:
    """Waits for the reply that a key began, and leaves the screens that it opened."""
    await chat.idle()
    while len(chat.app.screen_stack) > 1:
        await chat.press("escape")
    await chat.idle()
    assert chat.app.is_running


@pytest.mark.slow
@pytest.mark.parametrize("owner", [ChatScreen, MessageView])
def test_every_key_works_or_says_why_it_cannot(
    owner: type[ChatScreen | MessageView], path: Path, remote: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VISUAL", "true")

    @piloted
    async def run() -> None:
        async with opened(path, opener("none"), pair=remote, given={"max_tokens": 8}, size=(140, 40)) as chat:
            for key in keys_of(owner):
                if not chat.screen.transcript.views("assistant"):  # begun, deleted
                    await begun(chat)
                if owner is MessageView:
                    chat.screen.transcript.views("assistant")[-1].focus()
                await chat.press(key)
                await settled(chat)
            chat.screen.prompt.begin()
            chat.screen.prompt.end_rewriting()
            chat.screen.prompt.focus()
            await begun(chat)

    run()


@piloted
async def test_the_keys_of_lists_and_pages_work(path: Path, remote: Pair) -> None:
    """The model is in the list, is compared with another one, and what it said is kept."""
    async with opened(path, *[opener("none")] * 2, pair=remote, given={"max_tokens": 8}, size=(140, 40)) as chat:
        await begun(chat)
        await chat.press("ctrl+l")
        await chat.until("Used recently", f"▸ {remote.name}")
        await chat.press("down", "up", "enter")
        await chat.until(f"{remote.name} is loaded already.")
        await chat.press("ctrl+o", "ctrl+x")
        await chat.until("Written to")
        await chat.press("ctrl+d")
        await chat.until("Press Ctrl+D again to delete")
        await chat.press("escape", "f2", "t")
        await chat.until("decides about drafts itself")
        await chat.press("escape")
        await chat.say("/compare demo")
        await chat.until("tok/s", "1 or 2 keeps", gone="waits")
        await chat.press("1")
        await chat.until("version 2 of 2")
        assert [each.facts["model"] for each in chat.screen.branch.messages()[1:]] == [remote.name]


def test_every_command_is_tried() -> None:
    assert set(TYPED) == {each.name for each in COMMANDS}
