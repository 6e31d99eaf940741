"""The other screens and the looks of the terminal chat: reasons, graphs, help, palette, log, themes, sizes, the end."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from textual._compositor import LayoutUpdate
from textual.events import Resize
from textual.geometry import Size

from app.tui.widgets.panel import SidePanel
from tests.support.scripted import ScriptedEngine
from tests.support.tui import PATIENCE, chats_path, engine_of, opened, piloted

path = chats_path


@piloted
async def test_why_shows_the_costs_the_choice_and_what_was_observed(path: Path) -> None:
    async with opened(path, ScriptedEngine("one two three four"), size=(160, 48)) as chat:
        await chat.ask("Q")
        await chat.press("f2")
        await chat.until(
            "T(n)",
            "10.00 1.00",
            "30.00 3.00",
            "plain decode",
            "Acceptance by depth",
            "ledger of probes",
            "100%",
            "1 1 1.80 2.00 100%",
        )
        await chat.press("escape")
        await chat.until("one two three four")


@piloted
async def test_the_side_panel_draws_draft_lengths(path: Path) -> None:
    async with opened(path, ScriptedEngine("one two three four")) as chat:
        await chat.ask("Q")
        assert "draft length" not in chat.seen()
        await chat.press("ctrl+b")
        await chat.until("K, draft length: 0", "acceptance: 100%", "33% model", "67% plain decode")
        assert chat.app.screen.query_one(SidePanel).region.width > 20


@piloted
async def test_a_tiny_terminal_and_resizes_in_mid_reply_are_survived(path: Path) -> None:
    async with opened(path, ScriptedEngine("one two [wait]three"), size=(20, 5)) as chat:
        await chat.say("Q")
        await chat.until("one two")
        for size in ((160, 48), (5, 2), (80, 24)):
            await chat.pilot.resize_terminal(*size)
            await chat.pilot.pause()
        engine_of(chat).go.set()
        await chat.until("one two three")
        for key in ("f1", "f2", "ctrl+o"):
            await chat.pilot.resize_terminal(20, 5)
            await chat.press(key, "escape")


@piloted
async def test_a_terminal_that_was_another_size_for_a_moment_is_drawn_whole(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(path) as chat:
        drawn: list[object] = []
        monkeypatch.setattr(chat.app, "_display", lambda screen, frame: drawn.append(frame))
        for size in (Size(20, 5), Size(80, 24)):
            chat.app.post_message(Resize(size, size))
        end = time.monotonic() + PATIENCE
        while not any(isinstance(frame, LayoutUpdate) and frame.region.size == (80, 24) for frame in drawn):
            assert time.monotonic() < end
            await asyncio.sleep(0.02)


@piloted
async def test_help_names_every_command_and_keys_of_the_keymap(path: Path) -> None:
    async with opened(path, size=(120, 60), keymap={"chat.why": "f9"}) as chat:
        await chat.press("f1")
        await chat.until("/regenerate", "Ctrl+T /tokens", "F9 /why")
        await chat.press("escape", "f9")
        await chat.until("T(n)")


@piloted
async def test_the_palette_runs_commands(path: Path) -> None:
    async with opened(path) as chat:
        await chat.press("ctrl+p")
        await chat.type("graphs")
        await chat.until("Live graphs")
        await chat.press("enter")
        await chat.until("K, draft length")


@piloted
async def test_one_key_changes_between_dark_and_light(path: Path) -> None:
    async with opened(path) as chat:
        dark = chat.app.screen.styles.background.brightness
        await chat.press("f3")
        assert chat.app.screen.styles.background.brightness > dark + 0.5


@piloted
async def test_the_theme_is_there_again_at_the_next_start(path: Path) -> None:
    async with opened(path) as chat:
        await chat.press("f3")
        await chat.pilot.pause()
    async with opened(path) as chat:
        assert not chat.app.current_theme.dark
        assert chat.app.screen.styles.background.brightness > 0.5


@piloted
async def test_ctrl_c_twice_leaves_and_once_does_not(path: Path) -> None:
    async with opened(path) as chat:
        await chat.press("ctrl+c")
        await chat.until("Press Ctrl+C again")
        assert chat.app.is_running
        await chat.press("ctrl+c")
        assert not chat.app.is_running or chat.app._exit


@piloted
async def test_the_log_tells_what_was_loaded_and_said(path: Path) -> None:
    async with opened(path) as chat:
        await chat.ask("Q")
        await chat.press("f8")
        await chat.until("loaded scripted", "256 tokens of context", "reply: 100 tok/s")
