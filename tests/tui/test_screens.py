"""The other screens and the looks of the terminal chat: reasons, graphs, help, palette, log, themes, sizes, the end."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from textual._compositor import LayoutUpdate
from textual.events import Resize
from textual.geometry import Size

from app.tui.private_textual import notifications
from app.tui.widgets.panel import SidePanel
from tests.support.scripted import ScriptedEngine
from tests.support.tui import PATIENCE, chats_path, engine_of, opened, piloted, strips

path = chats_path


@piloted
async def test_why_shows_the_costs_the_choice_and_what_was_observed(path: Path) -> None:
    async with opened(path, ScriptedEngine("one two three four"), size=(160, 48)) as chat:
        await chat.ask("Q")
        await chat.press("f2")
        await chat.until("Only 1 of the reply's 4 tokens was guessed")
        await chat.until("Is it faster?", "Too early to say: the last reply was shorter", gone="T(n)")
        await chat.press("t")
        await chat.until(
            "Why passes had no guess",
            "1 of the 3 passes",
            "2 guesses from a draft model help, but few were sure enough to be",
            "T(n)",
            "10.00 1.00",
            "30.00 3.00",
            "plain decode",
            "Acceptance by depth",
            "What trying again costs",
            "1 1 1.80 2.00 -",
        )
        assert "%" not in chat.seen().partition("Expected and observed")[2].partition("What trying")[0]
        await chat.press("escape")
        await chat.until("one two three four")


@piloted
async def test_the_side_panel_draws_draft_lengths(path: Path) -> None:
    async with opened(path, ScriptedEngine("one two three four")) as chat:
        await chat.ask("Q")
        assert "Guessed ahead" not in chat.seen()
        await chat.press("ctrl+b")
        await chat.until("Guessed ahead Guessed right Written at once", gone="%")
        panel = chat.app.screen.query_one(SidePanel)
        assert (panel.region.width, panel.region.height) == (80, 3)  # a strip
        await chat.pilot.resize_terminal(120, 40)
        await chat.until("33% a draft model", "67% without a guess")
        assert panel.region.width == 32


@piloted
async def test_the_numbers_are_those_of_the_reply_on_screen(path: Path) -> None:
    long, short = " ".join(["word"] * 50), "one two"
    async with opened(path, ScriptedEngine(long, short), size=(120, 36)) as chat:
        await chat.press("ctrl+b")
        await chat.ask("Q")
        await chat.until("context 54/256", "▏ Written at once: 1.9")
        await chat.press("ctrl+n")
        await chat.until("scripted is ready", gone="Written at once")
        await chat.press("ctrl+o", "enter")
        await chat.until("context 54/256", "▏ Written at once: 1.9")
        await chat.ask("/regenerate")
        await chat.until("context 6/256", gone="context 54/256")
        await chat.press("shift+tab", "left")
        await chat.until("context 54/256", "▏ Written at once: 1.9", gone="context 6/256")


@piloted
async def test_a_short_chat_begins_at_the_top(path: Path) -> None:
    async with opened(path, ScriptedEngine("one")) as chat:
        await chat.ask("Q")
        assert [line.strip(" ▐▌█") for line in chat.seen().splitlines()[1:5]] == ["", "Q", "", "one"]


@piloted
async def test_what_is_said_for_a_while_does_not_cover_the_box_that_is_typed_into(path: Path) -> None:
    async with opened(path, ScriptedEngine("one")) as chat:
        await chat.ask("Q")
        for keys in ((), ("ctrl+o",), ("escape", "ctrl+l")):
            chat.app.clear_notifications()
            await chat.press(*keys)
            chat.app.notify(f"A long sentence after {keys} that takes several lines, " * 7, severity="error")
            await chat.until(f"after {keys}")
            screen = chat.app.screen
            toasts = [screen.find_widget(each).visible_region for each in screen.query("Toast") if each.region]
            assert toasts
            assert screen.focused is not None
            assert not [each for each in toasts if each.overlaps(screen.focused.region)]


@pytest.mark.parametrize("n", range(75, 79))  # letters, about as many as a line has room for
@piloted
async def test_what_is_said_is_there_to_its_last_word(path: Path, n: int) -> None:
    async with opened(path) as chat:
        chat.app.notify(f"{'x' * (n - 4)} fin")
        await chat.until("fin")


@piloted
async def test_what_went_wrong_is_told_for_longer_than_what_was_done(path: Path) -> None:
    async with opened(path, ScriptedEngine("one")) as chat:
        await chat.say("/wat")
        await chat.until("no command /wat")
        (error,) = notifications(chat.app)
        chat.screen.notify("Copied the message.")
        await chat.until("Copied the message.")
        (done,) = notifications(chat.app)
        assert error.timeout > 2 * done.timeout


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
        await chat.until("Is it faster?")


@piloted
async def test_the_palette_runs_commands(path: Path) -> None:
    async with opened(path) as chat:
        await chat.press("ctrl+p")
        await chat.type("graphs")
        await chat.until("Live graphs")
        await chat.press("enter")
        await chat.until("The graphs appear with the next reply")


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


@piloted
async def test_where_no_colours_are_wanted_there_are_none(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with opened(path, ScriptedEngine("one `two` three"), size=(120, 36)) as chat:
        await chat.ask("Q")
        await chat.press("ctrl+t", "ctrl+o")
        segments = [segment for strip in strips(chat.app) for segment in strip]
        styles = [segment.style for segment in segments if segment.style is not None]
        colors = {color.name for style in styles for color in (style.color, style.bgcolor) if color is not None}
        assert colors == {"default"}
        chosen = "".join(segment.text for segment in segments if segment.style and segment.style.underline)
        assert "▸" in chosen
        assert chosen.split()[-1] == "Q"


@piloted
async def test_a_message_replaces_the_last_one_and_covers_the_status_line_without_moving_anything(path: Path) -> None:
    async with opened(path, ScriptedEngine("Hello.")) as chat:
        await chat.ask("Q")
        before, at = chat.seen().splitlines(), chat.screen.status.region.y
        for text in ("first", "second"):
            chat.app.notify(f"The {text} one.")
        await chat.until("The second one.")
        after = chat.seen().splitlines()
        assert after[at] == "▌ The second one.".ljust(80)
        assert after[:at] + after[at + 1 :] == before[:at] + before[at + 1 :]
        chat.app.notify("A remedy that needs " + "many words " * 10, severity="error")
        await chat.until("A remedy", gone="The second one.")
        assert chat.seen().splitlines()[at - 2] == before[at - 2]
        await chat.press("f8")
        await chat.until("A remedy that needs many words", gone="The second one.")
        await chat.press("escape")
        await chat.paste("one\ntwo\nthree")  # the prompt grows, and the status line moves up
        chat.app.notify("Short.")
        await chat.until("▌ Short.")
        assert chat.seen().splitlines()[at - 2].startswith("▌ Short.")
