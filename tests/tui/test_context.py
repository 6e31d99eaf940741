"""The length of the context is set in the chat, with its cost before it; the loaded model is not loaded twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.tui.actions import context
from app.tui.actions.context import cost, parse_context
from bench.instruments.toy import facts
from runtime.core.errors import NoMemoryError, SettingsError
from runtime.engine import Options
from runtime.models.registry import Pair, load_registry
from tests.support.scripted import ScriptedEngine
from tests.support.tui import ChatPilot, chats_path, engine_of, opened, piloted

path = chats_path
DEMO = load_registry()["demo"]


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "free_memory", lambda: 8_000_000_000)


def of_context(n_ctx: int) -> ScriptedEngine:
    """An engine with that context."""
    return ScriptedEngine(f"from {n_ctx}", n_ctx=n_ctx)


def opening(asked: list[tuple[str, int | None]], n_ctx: int | None = None) -> object:
    """An engine that records the options it is opened with."""

    def open_engine(pair: Pair, options: Options, on_progress: object) -> ScriptedEngine:
        asked.append((pair.name, options.n_ctx))
        return of_context(options.n_ctx or n_ctx or 2048)

    return open_engine


async def accept(chat: ChatPilot, command: str) -> None:
    await chat.say(command)
    await chat.until("is loaded again. It needs")
    await chat.press("enter")
    await chat.idle()


@piloted
async def test_a_context_is_set_after_its_cost_is_shown(path: Path) -> None:
    asked: list[tuple[str, int | None]] = []
    async with opened(path, opening(asked), opening(asked), opening(asked), pair=DEMO) as chat:
        await chat.say("/context 1k")
        await chat.until("Context of 1,024 tokens", "MB less than", "are free for it", "Esc leaves 2,048 tokens")
        await chat.press("escape")
        await chat.until(gone="Context of")
        assert len(asked) == 1
        await accept(chat, "/context 1k")
        assert asked[1:] == [("demo", 1024)]
        assert engine_of(chat).facts.n_ctx == 1024
        assert chat.session.recent == ["demo"]
        await chat.say("/settings")
        await chat.until("context 1024 /context")
        await chat.press("escape")
        await accept(chat, "/context 2048")
        assert asked[2:] == [("demo", 2048)]


@piloted
async def test_a_context_is_set_in_the_list_of_settings(path: Path) -> None:
    asked: list[tuple[str, int | None]] = []
    async with opened(path, opening(asked), opening(asked), pair=DEMO) as chat:
        await chat.say("/settings")
        await chat.until("context 2048 the model")
        await chat.type("context")
        await chat.press("enter")
        await chat.until("tokens, such as 8192 or 8k")
        await chat.press("end", *["backspace"] * 4)
        await chat.type("512")
        await chat.press("enter")
        await chat.until("Context of 512 tokens")
        await chat.press("escape")
        await chat.until("│ 512 ", "tokens, such as 8192 or 8k", gone="Context of")
        await chat.press("escape")
        await chat.until("Settings: demo", "How much of a chat the model can look back on", gone="tokens, such as")
        await chat.press("enter")
        await chat.type("99999")
        await chat.press("enter")
        await chat.until("│ 99999 ", "was trained on 2,048 tokens of context")
        await chat.press("ctrl+u")
        await chat.type("512")
        await chat.press("enter", "enter")
        await chat.idle()
        assert asked[1:] == [("demo", 512)]


@piloted
async def test_what_fails_with_another_context_goes_back_to_the_one_before(path: Path) -> None:
    asked: list[tuple[str, int | None]] = []
    short = NoMemoryError("demo needs 900 MiB.")
    async with opened(path, opening(asked), short, short, opening(asked), pair=DEMO) as chat:
        await accept(chat, "/context 1024")
        await chat.until("demo needs 900 MiB. demo still answers.")
        assert asked == [("demo", None), ("demo", None)]
        assert engine_of(chat).facts.n_ctx == 2048


@pytest.mark.parametrize(
    ("argument", "sentence"),
    [
        ("many", "'many' is not a number of tokens"),
        ("-5", "'-5' is not a number of tokens"),
        ("10", "256 is the least"),
        ("999999", "/context 2048 is the most"),
        ("9" * 30, "is not a number of tokens"),
    ],
)
@piloted
async def test_an_impossible_context_is_a_sentence(path: Path, argument: str, sentence: str) -> None:
    async with opened(path, of_context(1024), pair=DEMO) as chat:
        await chat.say(f"/context {argument}")
        await chat.until(sentence)
        assert chat.app.screen is chat.screen


@piloted
async def test_the_context_of_another_servers_model_and_of_none_is_not_set_here(path: Path) -> None:
    far = Pair("far", Path(), upstream="http://192.0.2.1/v1")
    async with opened(path, of_context(1024), pair=far) as chat:
        await chat.say("/context 2048")
        await chat.until("Another server has far, so the length of its context is set there.")
    async with opened(path, NoMemoryError("too little"), wait=False) as chat:
        await chat.until("too little")
        await chat.press("escape")
        await chat.say("/context 2048")
        await chat.until("No model is loaded yet.")
        await chat.say("/settings")
        await chat.press("down", "enter")
        await chat.until("Settings: scripted", "No model is loaded yet.")


def test_a_context_that_memory_does_not_allow_names_the_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse_context("8K") == parse_context("8,192") == 8192
    assert cost(DEMO, Options(), 2048, 512).n_more > 0
    spec = context.whole(DEMO, Options(), 2048)
    assert spec is not None
    monkeypatch.setattr(context, "free_memory", lambda: spec.needs(1024, False) - spec.needs(512, True))
    with pytest.raises(SettingsError, match=r"2,048 tokens needs .* are free for it. /context 1024 is the most"):
        cost(DEMO, Options(), 2048, 512)
    assert not cost(DEMO, Options(), 1024, 512).with_draft


@piloted
async def test_choosing_the_loaded_model_does_not_load_it_again(path: Path) -> None:
    async with opened(path, of_context(1024), pair=DEMO) as chat:
        first = engine_of(chat)
        await chat.say("/model demo")
        await chat.until("demo is loaded already.")
        chat.app.clear_notifications()
        await chat.press("ctrl+l")
        await chat.until("▸ demo")
        await chat.press("enter")
        await chat.until("demo is loaded already.")
        assert engine_of(chat) is first


@piloted
async def test_the_file_that_is_loaded_with_a_draft_found_for_it_is_not_loaded_again(path: Path) -> None:
    file = Pair("target.gguf", DEMO.target, DEMO.draft, context=0)
    engine = of_context(1024)
    engine.facts = facts(n_ctx=1024, n_ctx_train=2048)
    async with opened(path, engine, pair=file) as chat:
        await chat.say(f"/model {DEMO.target}")
        await chat.until("target.gguf is loaded already.")
        await chat.say("/settings")
        await chat.until("context 1024 the free memory")
