"""Exports a picture of the chat for the README: the bundled pair answers questions in the real app, without a terminal.

python -m demo.screenshot docs/chat.svg
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from textual.pilot import Pilot

from app.chats.store import Store
from app.tui.app import ChatApp
from app.tui.chat_screen import ChatScreen
from app.tui.chat_settings import ChatSettings
from app.tui.session import Session
from runtime.engine import Options
from runtime.engine.loaded import LoadedEngine
from runtime.models.registry import load_registry

SIZE = (110, 30)
PATIENCE = 120.0  # seconds for a reply on a busy machine
QUESTIONS = ("What does random.shuffle do?", "What is collections.deque?", "What does os.path.join do?")


async def picture(path: Path) -> None:
    """Asks, shows the graphs, and writes the picture."""
    with tempfile.TemporaryDirectory() as folder:
        settings = ChatSettings(Store(Path(folder) / "chats.db"))
        session = Session(load_registry()["demo"], Options(), settings, LoadedEngine)
        app = ChatApp(session)
        async with app.run_test(size=SIZE) as pilot:
            screen = app.screen
            assert isinstance(screen, ChatScreen)
            await idle(screen, pilot)
            for question in QUESTIONS:
                screen.prompt.insert(question)
                await pilot.press("enter")
                await pilot.pause(0.2)
                await idle(screen, pilot)
            await pilot.press("ctrl+b")
            await pilot.pause(0.5)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(app.export_screenshot(title="slipstream"), encoding="utf8")
        if session.engine is not None:
            session.engine.close()
        session.store.close()


async def idle(screen: ChatScreen, pilot: Pilot[None]) -> None:
    """Waits until the model is loaded and the reply complete. Raises TimeoutError."""
    end = time.monotonic() + PATIENCE
    while screen.host.is_busy:
        if time.monotonic() > end:
            raise TimeoutError("\n".join(["The chat stayed busy.", *screen.session.log]))
        await pilot.pause(0.05)


if __name__ == "__main__":
    asyncio.run(picture(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/chat.svg")))
