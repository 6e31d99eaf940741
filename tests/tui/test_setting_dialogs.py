"""The dialogs of the settings: what they say, and where Esc leads."""

from __future__ import annotations

from pathlib import Path

from app.tui.actions.settings import rows
from tests.support.tui import chats_path, opened, piloted

path = chats_path


@piloted
async def test_esc_in_the_dialog_of_a_setting_goes_back_to_the_list(path: Path) -> None:
    async with opened(path) as chat:
        await chat.say("/settings")
        for row in rows(chat.screen)[:3]:  # the others have the third one's dialog
            await chat.until("Settings: scripted", row.about[:30], gone="Enter accepts")
            await chat.press("enter")
            await chat.until(f"╭─ {row.name.lower()}", "Enter accepts", gone="Settings: scripted")
            await chat.press("escape", "down")


@piloted
async def test_the_dialog_of_the_system_prompt_says_what_it_is(path: Path) -> None:
    async with opened(path) as chat:
        await chat.press("f6")
        await chat.until("Instructions that the model reads before this chat", "/system none removes it")
