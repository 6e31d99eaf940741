"""How long a key takes to the screen while the bundled pair streams at full speed, through the real app without a
terminal.

python -m bench.typing
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from pathlib import Path

import numpy as np
from textual.events import Key

from app.chats.store import Store
from app.tui.app import ChatApp
from app.tui.chat_screen import ChatScreen
from app.tui.chat_settings import ChatSettings
from app.tui.session import Session
from runtime.engine import Options
from runtime.engine.loaded import LoadedEngine
from runtime.models.registry import load_registry

N_KEYS, PAUSE = 100, 0.05  # keys, seconds between them
HOT = {"temperature": 2.0, "seed": 1}  # says things until it is stopped


async def measure(path: Path) -> tuple[list[float], int, float]:
    """Seconds per key, keys that were lost, tok/s meanwhile."""
    session = Session(load_registry()["demo"], Options(), ChatSettings(Store(path), HOT), LoadedEngine)
    app, taken = ChatApp(session), list[float]()
    async with app.run_test(size=(120, 40)) as pilot:
        screen = app.screen
        assert isinstance(screen, ChatScreen)
        while screen.host.is_busy:
            await pilot.pause(0.05)
        screen.prompt.insert("What does os.path.join do?")
        await pilot.press("enter")
        written = len(screen.prompt.text)
        for n in range(N_KEYS):
            if not screen.host.is_replying:
                await pilot.press("ctrl+g")
            began = time.perf_counter()
            app.post_message(Key("x", "x"))
            while len(screen.prompt.text) < written + n + 1 and time.perf_counter() - began < 2:
                await asyncio.sleep(0.001)
            await wait_for_paint(app)
            taken.append(time.perf_counter() - began)
            await asyncio.sleep(PAUSE)
        lost, speed = written + N_KEYS - len(screen.prompt.text), screen.host.numbers.reply.predicted_per_second
        screen.host.cancel()
        while screen.host.is_replying:
            await pilot.pause(0.05)
    if session.engine is not None:
        session.engine.close()
    session.store.close()
    return taken, lost, speed


async def wait_for_paint(app: ChatApp) -> None:
    """Until what is changed now was drawn."""
    drawn = asyncio.Event()
    app.screen.call_after_refresh(drawn.set)
    await drawn.wait()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        taken, lost, speed = asyncio.run(measure(Path(folder) / "chats.db"))
    p50, p95, worst = (1e3 * float(np.percentile(taken, share)) for share in (50, 95, 100))
    print(
        f"key to screen: median {p50:.1f} ms, 95th percentile {p95:.1f} ms, worst {worst:.1f} ms; {lost} of {N_KEYS} "
        f"lost; {speed:.0f} tok/s"
    )
    print(
        json.dumps(
            {
                "p50_ms": round(p50, 2),
                "p95_ms": round(p95, 2),
                "max_ms": round(worst, 2),
                "lost": lost,
                "per_second": round(speed, 1),
            }
        )
    )
