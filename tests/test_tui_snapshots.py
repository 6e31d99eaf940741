"""The main screens as pictures, at two sizes and in both themes, with a scripted engine.

After a change that is meant to be seen: `python -m tests.test_tui_snapshots` writes tests/snapshots anew, with a word only those
whose names hold it; look at them before committing.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import sys
import tempfile
from pathlib import Path

import pytest

from app.tui.chat import DARK, LIGHT
from tests.scripted import ScriptedEngine
from tests.tui import Chat, opened

HERE = Path(__file__).parent / "snapshots"
SIZES = {"small": (80, 24), "large": (140, 44)}
THEMES = {"dark": DARK, "light": LIGHT}
REPLY = "A **deque** grows at both ends:\n\n```python\nfrom collections import deque\nd = deque([1, 2])\n```\n\n- `appendleft(x)`\n- `popleft()`\n"
SCREENS = {"welcome": (), "reply": (), "tokens": ("ctrl+t",), "why": ("f2",), "help": ("f1",)}
CASES = list(itertools.product(SCREENS, SIZES, THEMES))


async def picture(path: Path, screen: str, size: str, theme: str) -> str:
    """The screen as SVG, without what differs from one process to the next."""
    async with opened(path, ScriptedEngine(REPLY), size=SIZES[size]) as chat:
        chat.app.theme = THEMES[theme]
        chat.app.screen_stack[0].query_one("#prompt").cursor_blink = False  # type: ignore[attr-defined]
        if screen != "welcome":
            await chat.ask("What is a deque?")
        await chat.press(*SCREENS[screen])
        return await settled(chat)


async def settled(chat: Chat) -> str:
    """The picture that stays."""
    before, now = "", plain(chat.app.export_screenshot(title="slipstream"))
    while before != now:
        await asyncio.sleep(0.3)
        await chat.pilot.pause()
        before, now = now, plain(chat.app.export_screenshot(title="slipstream"))
    return now


def plain(svg: str) -> str:
    """Without the ids that a hash of the content gives; a difference is then one of what is seen."""
    return re.sub(r"terminal-\d+", "terminal", svg)


@pytest.mark.parametrize(("screen", "size", "theme"), CASES)
def test_a_screen_looks_as_it_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, screen: str, size: str, theme: str) -> None:
    monkeypatch.chdir(tmp_path)
    seen, known = asyncio.run(picture(tmp_path / "chats.db", screen, size, theme)), HERE / f"{screen}-{size}-{theme}.svg"
    if seen != known.read_text(encoding="utf8"):
        (tmp_path / known.name).write_text(seen, encoding="utf8")
        raise AssertionError(f"{known.name} is different: compare {tmp_path / known.name}, or write all anew: python -m tests.test_tui_snapshots")


def write(word: str) -> None:
    """The pictures whose names hold the word, anew."""
    HERE.mkdir(exist_ok=True)
    for screen, size, theme in CASES:
        path = HERE / f"{screen}-{size}-{theme}.svg"
        if word in path.name:
            with tempfile.TemporaryDirectory() as folder:
                path.write_text(asyncio.run(picture(Path(folder) / "chats.db", screen, size, theme)), encoding="utf8")
            print(path.name)


if __name__ == "__main__":
    write(sys.argv[1] if len(sys.argv) > 1 else "")
