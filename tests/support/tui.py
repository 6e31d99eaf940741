"""The chat under test: the real app without a terminal, keys in, text on screen out."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pyperclip
import pytest
from textual.app import App
from textual.events import Paste
from textual.pilot import Pilot
from textual.strip import Strip

from app.chats.store import Store
from app.tui.app import ChatApp
from app.tui.chat_screen import ChatScreen
from app.tui.chat_settings import ChatSettings, Values
from app.tui.session import Session
from runtime.engine import Options
from runtime.models.registry import Pair
from tests.support.scripted import ScriptedEngine
from tests.support.waiting import PATIENCE


@pytest.fixture
def chats_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the chats are; exports and attachments go by the folder of the test, and the desktop's clipboard is a file
    in it.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pyperclip, "copy", lambda text: (tmp_path / "desktop").write_text(text, encoding="utf8"))
    return tmp_path / "chats.db"


def strips(app: App[Any]) -> list[Strip]:
    """Return the lines on the screen, as Textual 8.2.8 draws them: else look how its `export_screenshot` does it."""
    return app.screen._compositor.render_strips()


class ChatPilot:
    """What a test does and sees."""

    def __init__(self, app: ChatApp, pilot: Pilot[None]) -> None:
        self.app, self.pilot, self.session = app, pilot, app.session

    @property
    def screen(self) -> ChatScreen:
        """The chat screen, whatever is over it."""
        screen = self.app.screen_stack[0]
        assert isinstance(screen, ChatScreen)
        return screen

    def seen(self) -> str:
        """The text on the screen, line by line."""
        return "\n".join(strip.text for strip in strips(self.app))

    async def until(self, *words: str, gone: str = "") -> None:
        """Waits until all of that is on the screen, and `gone` is not."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            await self.pilot.pause()
            seen = " ".join(self.seen().split())
            if all(word in seen for word in words) and not (gone and gone in seen):
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"{words} did not come (or {gone!r} did not go). On the screen:\n{self.seen()}")

    async def idle(self) -> None:
        """Waits until a model is there and no reply is made."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            await self.pilot.pause()
            if not self.screen.host.is_busy and self.screen.waiting is None:
                await self.pilot.pause()
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"still busy:\n{self.seen()}")

    async def say(self, text: str) -> None:
        """Writes in one go and sends."""
        await self.paste(text)
        await self.pilot.press("enter")

    async def ask(self, text: str) -> None:
        """The same, and waits for the reply."""
        await self.say(text)
        await self.pilot.pause()
        await self.idle()

    async def type(self, text: str) -> None:
        """Key by key."""
        names = {
            " ": "space",
            "\n": "ctrl+j",
            "/": "slash",
            "@": "at",
            ".": "full_stop",
            "?": "question_mark",
            "_": "underscore",
            "-": "minus",
        }
        await self.pilot.press(*(names.get(letter, letter) for letter in text))

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def paste(self, text: str) -> None:
        """As a terminal does it."""
        assert self.app.focused is not None
        self.app.focused.post_message(Paste(text))
        await self.pilot.pause()

    def copied(self) -> str:
        return self.app.clipboard


def session_with(
    path: Path,
    *engines: Any,
    keymap: dict[str, str] | None = None,
    pair: Pair | None = None,
    given: Values | None = None,
) -> Session:
    """A session with its store at `path`; every loading takes the next of the engines, or raises it."""
    left = list(engines or [ScriptedEngine("Hello.")])

    def open_engine(pair: Pair, options: Options, on_progress: Callable[[str, float], bool], seeks: bool = True) -> Any:
        engine = left.pop(0)
        if callable(engine):
            engine = engine(pair, options, on_progress)
        if isinstance(engine, Exception):
            raise engine
        return engine

    scripted = Pair("scripted", Path("none.gguf"), temperature=0.0)
    return Session(pair or scripted, Options(), ChatSettings(Store(path), given or {}), open_engine, keymap or {})


def chat_app(path: Path, *engines: Any, **named: Any) -> ChatApp:
    """The chat in that session."""
    return ChatApp(session_with(path, *engines, **named))


@asynccontextmanager
async def opened(
    path: Path,
    *engines: Any,
    size: tuple[int, int] = (80, 24),
    wait: bool = True,
    keymap: dict[str, str] | None = None,
    pair: Pair | None = None,
    given: Values | None = None,
    first: int | None = None,
) -> AsyncIterator[ChatPilot]:
    """That chat, running; `given`: settings of the command line, `first`: the chat that it begins with."""
    app = ChatApp(session_with(path, *engines, keymap=keymap, pair=pair, given=given), first)
    try:
        async with app.run_test(size=size, notifications=True) as pilot:
            chat = ChatPilot(app, pilot)
            if wait:
                await chat.idle()
            yield chat
    finally:
        app.session.stop_serving()
        app.session.store.close()


def engine_of(chat: ChatPilot) -> ScriptedEngine:
    """The engine that answers now."""
    return chat.session.engine  # type: ignore[return-value]


def piloted(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Runs an async test."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))  # type: ignore[arg-type]

    return run
