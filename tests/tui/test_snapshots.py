"""The main screens as pictures, at two sizes and in both themes, with a scripted engine.

After a change that is meant to be seen: `pytest tests/tui/test_snapshots.py --snapshot-update` writes them anew; look
at them before committing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot

from app.tui.actions.views import DARK, LIGHT
from tests.support.scripted import ScriptedEngine
from tests.support.tui import ChatPilot, chat_app

REPLY = "A **deque** grows at both ends:\n\n```python\nfrom collections import deque\n"
REPLY += "d = deque([1, 2])\n```\n\n- `appendleft(x)`\n- `popleft()`\n"
SCREENS = {"welcome": (), "reply": (), "tokens": ("ctrl+t",), "why": ("f2",), "tables": ("f2", "t"), "help": ("f1",)}


@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("size", [pytest.param((80, 24), id="small"), pytest.param((140, 44), id="large")])
@pytest.mark.parametrize(
    "theme", [pytest.param(DARK, id="dark"), pytest.param(LIGHT, id="light", marks=pytest.mark.slow)]
)
def test_a_screen_looks_as_it_did(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    snap_compare: Callable[..., bool],
    screen: str,
    size: tuple[int, int],
    theme: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    app = chat_app(tmp_path / "chats.db", ScriptedEngine(REPLY))

    async def prepare(pilot: Pilot[None]) -> None:
        chat = ChatPilot(app, pilot)
        await chat.idle()
        app.theme = theme
        chat.screen.prompt.cursor_blink = False
        chat.screen.prompt.notify_style_update()  # draws the line anew: it may be there without the cursor
        if screen != "welcome":
            await chat.ask("What is a deque?")
        await chat.press(*SCREENS[screen])
        await settled(chat)

    assert snap_compare(app, terminal_size=size, run_before=prepare)
    app.session.store.close()


async def settled(chat: ChatPilot) -> None:
    """Wait until nothing moves and all messages are handled."""
    await chat.pilot.wait_for_scheduled_animations()
    await chat.pilot.pause()
