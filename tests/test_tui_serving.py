"""Editors beside the chat: one engine, one reply at a time, and what the status line says of it."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.tui.serving import addresses_of
from app.tui.shared_engine import SharedEngine
from runtime.core.errors import SettingsError
from runtime.engine import Message, Sampling
from runtime.models.registry import load_registry
from tests.conftest import OpenEngine
from tests.support.scripted import ScriptedEngine
from tests.support.tui import opened, piloted
from tests.support.waiting import PATIENCE

QUESTION = [Message("user", "Q")]
GREEDY = Sampling(temperature=0)


def shared(*replies: str) -> SharedEngine:
    return SharedEngine(ScriptedEngine(*replies))  # type: ignore[arg-type]


def in_thread(work: Any) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_a_second_thread_has_its_reply_after_the_first_one_ends() -> None:
    engine, said = shared("one two", "three"), list[str]()
    first = engine.reply(QUESTION, GREEDY)
    said.append(next(first).text)
    other = in_thread(lambda: said.extend(chunk.text for chunk in engine.reply(QUESTION, GREEDY)))
    other.join(0.2)
    assert said == ["one"]
    said.extend(chunk.text for chunk in first)
    other.join(PATIENCE)
    assert "".join(said) == "one twothree"


@pytest.mark.parametrize("leave", ["close", "forget"])
def test_a_reply_that_is_left_gives_its_turn_back(leave: str) -> None:
    engine, said = shared("one two", "three"), list[str]()
    first: Any = engine.reply(QUESTION, GREEDY)
    next(first)
    if leave == "close":
        first.close()
    del first
    other = in_thread(lambda: said.extend(chunk.text for chunk in engine.reply(QUESTION, GREEDY)))
    other.join(PATIENCE)
    assert said[0] == "three"


def test_who_waits_can_be_cancelled_and_never_asks_the_engine() -> None:
    engine, ends = shared("one two"), list[str | None]()
    first = engine.reply(QUESTION, GREEDY)
    other = in_thread(
        lambda: ends.extend(chunk.finish_reason for chunk in engine.reply(QUESTION, GREEDY, cancel=lambda: True))
    )
    other.join(PATIENCE)
    assert ends == ["cancelled"]
    assert len(engine.asked) == 1
    del first


@pytest.mark.parametrize(
    ("words", "port", "path"), [("", 8012, None), ("0", 0, None), ("/tmp/s.sock", None, Path("/tmp/s.sock"))]
)
def test_what_follows_serve_is_a_port_or_a_path(words: str, port: int | None, path: Path | None) -> None:
    found = addresses_of(words)
    assert (found.host, found.port, found.path) == ("127.0.0.1", port, path)


def test_a_port_that_none_is_is_refused() -> None:
    with pytest.raises(SettingsError, match="ports go up to 65535"):
        addresses_of("70000")


def say(path: Path, headers: dict[str, str] | None = None) -> str:
    """What an editor gets of the server at that socket."""
    body = {"messages": [{"role": "user", "content": "What does os.path.join do?"}], "temperature": 0, "max_tokens": 8}
    with httpx2.Client(
        transport=httpx2.HTTPTransport(uds=str(path)), base_url="http://chat", timeout=PATIENCE, headers=headers
    ) as client:
        return str(
            client.post("/v1/chat/completions", json=body).raise_for_status().json()["choices"][0]["message"]["content"]
        )


@piloted
async def test_editors_are_answered_from_the_chats_model_until_it_is_switched_off(
    tmp_path: Path, open_demo: OpenEngine
) -> None:
    engine, place = open_demo(threads=1), tmp_path / "s.sock"
    async with opened(tmp_path / "chats.db", lambda *_: engine, size=(120, 30), pair=load_registry()["demo"]) as chat:
        chat.screen.session.allow_origins = ("app://obsidian.md",)
        await chat.say(f"/serve {place}")
        await chat.until("serving: 0 answered")
        text = await asyncio.to_thread(say, place, {"origin": "app://obsidian.md"})
        assert "Join two or more" in text
        await chat.until("serving: 1 answered")
        await chat.ask("/set max_tokens 8")
        await chat.ask("What does os.path.join do?")
        await chat.until("Join two or more", "serving: 1 answered")
        await chat.say(f"/serve {tmp_path / 'other.sock'}")
        await chat.until("Editor access is on already")
        await chat.say("/serve off")
        await chat.until("Editor access is off", gone="serving:")
        assert not place.exists()


@piloted
async def test_a_place_that_cannot_be_had_is_a_sentence_and_the_chat_goes_on(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    async with opened(tmp_path / "chats.db") as chat:
        await chat.say(f"/serve {(tmp_path / 'file')}")
        await chat.until("socket.")
        await chat.ask("Q")
        await chat.until("Hello.", gone="serving:")


@piloted
async def test_a_switch_of_models_serves_the_new_one(tmp_path: Path, open_demo: OpenEngine) -> None:
    engine, place = open_demo(threads=1), tmp_path / "s.sock"
    first = ScriptedEngine("one")
    async with opened(tmp_path / "chats.db", first, lambda *_: engine, size=(120, 30)) as chat:
        await chat.say(f"/serve {place}")
        await chat.until("serving: 0 answered")
        await chat.ask("/model demo")
        await chat.until("demo is ready", "serving: 0 answered")
        assert first.closed
        assert "Join two or more" in await asyncio.to_thread(say, place)
        await chat.say("/serve off")
        await chat.until("Editor access is off", gone="serving:")
