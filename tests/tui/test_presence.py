"""The search for a draft model waits while somebody is at the chat and cores are few, and during a comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.tui import pace
from tests.support.scripted import ScriptedEngine
from tests.support.tui import ChatPilot, chats_path, engine_of, opened, piloted

path = chats_path


def go_away(chat: ChatPilot) -> None:
    """As if nothing had been touched for long."""
    chat.app.presence._seen = float("-inf")


def cores(monkeypatch: pytest.MonkeyPatch, n: int) -> None:
    monkeypatch.setattr(pace, "n_cores", lambda: n)


@piloted
async def test_who_types_or_has_a_reply_to_read_is_there(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cores(monkeypatch, 2)
    async with opened(path, ScriptedEngine("one [wait]two")) as chat:
        assert chat.app.disturbs()
        go_away(chat)
        assert not chat.app.disturbs()
        await chat.press("x")
        assert chat.app.disturbs()
        await chat.say("Q")
        await chat.until("one")
        go_away(chat)
        engine_of(chat).go.set()
        await chat.idle()
        assert chat.app.disturbs()
    assert not chat.app.disturbs()  # and who has left is not


@piloted
async def test_with_more_cores_nobody_is_disturbed_but_a_comparison(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cores(monkeypatch, 8)
    second, how = ScriptedEngine("a [wait]b"), list[dict[str, Any]]()
    async with opened(path, ScriptedEngine("left"), second, size=(100, 30)) as chat:
        open_engine = chat.session.open_engine
        chat.session.open_engine = lambda *pair, **more: how.append(more) or open_engine(*pair, **more)  # type: ignore[func-returns-value]
        assert not chat.app.disturbs()
        await chat.say("/compare demo How so?")
        await chat.until("left", "a")
        assert chat.app.disturbs()
        second.go.set()
        await chat.until("a b")
        await chat.press("escape")
        await chat.until("new chat")
        assert not chat.app.disturbs()
    assert how == [{"seeks": False}]
