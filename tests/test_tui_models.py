"""The model behind the terminal chat, by what is seen: it fails, is switched, is short of memory; once a real one."""

from __future__ import annotations

from pathlib import Path

from textual.widgets import Markdown

from app.tui.widgets.message_view import MessageView
from runtime.core.errors import ModelError
from runtime.engine import Message, Sampling
from runtime.models.registry import load_registry
from runtime.process.client import EngineProcess
from tests.conftest import OpenEngine
from tests.support.facts import facts
from tests.support.scripted import ScriptedEngine
from tests.support.tui import chats_path, opened, piloted

path = chats_path


@piloted
async def test_a_model_that_fails_to_load_says_why_and_another_can_be_taken(path: Path) -> None:
    second = ScriptedEngine("From the second.")
    async with opened(path, ModelError("x.gguf is damaged. Download it again."), second, wait=False) as chat:
        await chat.until("x.gguf is damaged. Download it again.", "Ctrl+L chooses another model")
        await chat.press("ctrl+l")
        await chat.until("Load another model", "demo")
        await chat.press("enter")
        await chat.until("Slipstream · demo", "demo is ready", gone="damaged")
        await chat.ask("Q")
        await chat.until("From the second.")


@piloted
async def test_switching_stops_the_reply_and_closes_the_old_pair(path: Path) -> None:
    first, second = ScriptedEngine("one [wait]two"), ScriptedEngine("new model")
    async with opened(path, first, second) as chat:
        await chat.say("Q")
        await chat.until("one")
        await chat.ask("/model demo")
        await chat.until("Slipstream · demo", "stopped")
        assert first.closed
        await chat.say("/model nothing")
        await chat.until("There is no pair 'nothing'")


@piloted
async def test_what_is_given_up_for_want_of_memory_is_said_while_it_lasts(path: Path) -> None:
    engine = ScriptedEngine("Hello there, you.")
    engine.facts = facts(left_out="memory is short: left out the draft model: all of it needs 900 MiB")
    async with opened(path, engine) as chat:
        await chat.until("memory is short: left out the draft model")
        engine.facts, engine.memory_level = facts(), "TIGHT"
        engine.given_up = "the model drafter was given up, because this machine had 900 MiB of memory left"
        await chat.ask("Q")
        await chat.until("tok/s · memory TIGHT", f"memory is TIGHT: {engine.given_up}")
        engine.tend = lambda: (setattr(engine, "given_up", ""), setattr(engine, "memory_level", "OK"))[0]  # type: ignore[assignment]
        chat.screen.host.tend_memory()
        await chat.until("Hello there, you.", gone="memory")
        assert "back" in chat.session.log[-1]


@piloted
async def test_the_demo_pair_says_in_the_chat_what_the_engine_says(path: Path, open_demo: OpenEngine) -> None:
    question = "What does os.path.join do?"
    expected = "".join(chunk.text for chunk in open_demo().reply([Message("user", question)], Sampling(temperature=0)))
    async with opened(path, EngineProcess, pair=load_registry()["demo"]) as chat:
        await chat.ask(question)
        turn = chat.app.screen.query(MessageView).last()
        assert turn.text == expected
        assert turn.query_one(Markdown).source == expected
        assert "tok/s" in chat.seen()
        assert chat.session.engine is not None
        chat.session.engine.close()
