"""The terminal chat with a public model: a question is answered, and answered once more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from runtime.engine.process.client import EngineProcess
from tests.real.asking import QUESTION
from tests.real.conftest import FindPair, SayPlainly
from tests.support import tui
from tests.support.tui import chats_path, opened, piloted

path = chats_path


@piloted
async def test_a_question_is_answered_and_answered_again(
    path: Path, real_pair: FindPair, said_plainly: SayPlainly, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tui, "PATIENCE", 120.0)
    plain = said_plainly("smollm2", False, "short, greedy").text
    async with opened(path, EngineProcess, pair=replace(real_pair("smollm2"), temperature=0.0), size=(80, 60)) as chat:
        await chat.ask("/set max_tokens 24")
        await chat.ask(QUESTION)
        await chat.until("tok/s")
        await chat.press("ctrl+g")
        await chat.idle()
        await chat.until("version 2 of 2")
        replies = [each for each in chat.screen.branch.messages() if each.role == "assistant"]
        assert replies[-1].content == plain
