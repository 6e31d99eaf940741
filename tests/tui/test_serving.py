"""Editors beside the chat: one engine in its own process, whose passes they share, and what the status line says."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.tui.serving import addresses_of
from app.tui.session import EDITORS, Given
from runtime.core.errors import ModelError, SettingsError
from runtime.engine.engine import Ask
from runtime.engine.output import Sink
from runtime.engine.process.client import EngineProcess
from runtime.models.registry import load_registry
from tests.support.scripted import ScriptedEngine
from tests.support.tui import ChatPilot, opened, piloted
from tests.support.waiting import PATIENCE

DEMO = load_registry()["demo"]
QUESTION = "What does os.path.join do?"
ASKED = {"messages": [{"role": "user", "content": QUESTION}], "temperature": 0, "max_tokens": 8}
WIDE = (120, 30)


class Endless:
    """The engine of a process, whose replies to the chat go on until they are stopped."""

    def __init__(self, engine: EngineProcess) -> None:
        self._engine = engine
        self._ends = tuple((token, -math.inf) for token in engine.end_tokens)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def add(self, ask: Ask, sink: Sink) -> int:
        if ask.is_traced:
            ask = replace(ask, sampling=replace(ask.sampling, logit_bias=self._ends))
        return self._engine.add(ask, sink)

    answer, reply, _chunks, _next, _wait = (
        getattr(EngineProcess, name) for name in ("answer", "reply", "_chunks", "_next", "_wait")
    )

    def close(self) -> None:
        """Nothing: other tests use the process, too."""


@pytest.mark.parametrize(
    ("words", "port", "path"), [("", 8012, None), ("0", 0, None), ("/tmp/s.sock", None, Path("/tmp/s.sock"))]
)
def test_what_follows_serve_is_a_port_or_a_path(words: str, port: int | None, path: Path | None) -> None:
    found = addresses_of(words)
    assert (found.host, found.port, found.path) == ("127.0.0.1", port, path)


def test_a_port_that_none_is_is_refused() -> None:
    with pytest.raises(SettingsError, match="ports go up to 65535"):
        addresses_of("70000")


def client(path: Path) -> httpx2.AsyncClient:
    """An editor at that socket."""
    transport = httpx2.AsyncHTTPTransport(uds=str(path))
    return httpx2.AsyncClient(transport=transport, base_url="http://chat", timeout=PATIENCE)


async def say(path: Path, **headers: str) -> str:
    """What an editor gets of the server at that socket."""
    async with client(path) as editor:
        reply = await editor.post("/v1/chat/completions", json=ASKED, headers=headers)
    return str(reply.raise_for_status().json()["choices"][0]["message"]["content"])


@asynccontextmanager
async def serving(folder: Path, *engines: Any) -> AsyncIterator[tuple[ChatPilot, Path]]:
    """A chat with these engines that answers editors at a socket; what it must not do is leave the socket there."""
    place = folder / "s.sock"
    async with opened(folder / "chats.db", *engines, size=WIDE, pair=DEMO) as chat:
        await chat.say(f"/serve {place}")
        await chat.until("serving: 0 answered")
        yield chat, place
        await chat.say("/serve off")
        await chat.until("Editor access is off", gone="serving:")
        assert not place.exists()


@piloted
async def test_editors_are_answered_from_the_chats_model_until_it_is_switched_off(
    tmp_path: Path, demo_process: EngineProcess
) -> None:
    async with serving(tmp_path, lambda *_: demo_process) as (chat, place):
        await chat.say("/serve off")
        await chat.until("Editor access is off", gone="serving:")
        chat.screen.session.given = Given(allow_origins=("app://obsidian.md",))
        await chat.say(f"/serve {place}")
        await chat.until("serving: 0 answered")
        assert "Join two or more" in await say(place, origin="app://obsidian.md")
        await chat.until("serving: 1 answered")
        await chat.ask("/set max_tokens 8")
        await chat.ask(QUESTION)
        await chat.until("Join two or more", "serving: 1 answered")
        await chat.say(f"/serve {tmp_path / 'other.sock'}")
        await chat.until("Editor access is on already")


@piloted
async def test_a_completion_is_answered_while_a_reply_of_the_chat_streams(
    tmp_path: Path, demo_process: EngineProcess
) -> None:
    async with serving(tmp_path, lambda *_: Endless(demo_process)) as (chat, place), client(place) as editor:
        await chat.say(QUESTION)
        await chat.until("Join two or more")
        for path, body in (
            ("/v1/completions", {"prompt": "import os\n", "max_tokens": 12, "temperature": 0}),
            ("/v1/chat/completions", ASKED),
            ("/v1/embeddings", {"input": "import os"}),
        ):
            reply = await editor.post(path, json=body)
            assert reply.status_code == 200, reply.text
            assert chat.screen.host.is_replying
        reply = chat.screen.host.reply
        assert reply is not None
        await chat.press("escape")
        await chat.until("stopped")
        written = chat.screen.branch.messages()[-1]
        n_said = sum(run[0] * run[4] for run in written.facts["numbers"]["passes"])
        assert len(reply.pieces) == n_said > 0  # passes of editors' replies are none of the chat's


@piloted
async def test_the_chat_is_never_refused_and_editors_are_where_too_many_wait(
    tmp_path: Path, demo_process: EngineProcess
) -> None:
    async with serving(tmp_path, lambda *_: Endless(demo_process)) as (chat, place), client(place) as editor:
        ends = {str(token): -100 for token in demo_process.end_tokens}
        body = ASKED | {"max_tokens": 400, "logit_bias": ends}
        assert EDITORS.max_running is not None
        assert EDITORS.max_waiting is not None
        most = EDITORS.max_running + EDITORS.max_waiting
        asked = [asyncio.create_task(editor.post("/v1/chat/completions", json=body)) for _ in range(most + 2)]
        done, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        assert {each.result().status_code for each in done} == {429}
        await chat.say(QUESTION)
        for each in asked:
            each.cancel()
        await chat.until("Join two or more")
        await chat.press("escape")
        await chat.until("stopped")


@piloted
async def test_a_place_that_cannot_be_had_is_a_sentence_and_the_chat_goes_on(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    async with opened(tmp_path / "chats.db") as chat:
        await chat.say(f"/serve {(tmp_path / 'file')}")
        await chat.until("socket.")
        await chat.ask("Q")
        await chat.until("Hello.", gone="serving:")


@piloted
async def test_a_switch_of_models_ends_editors_replies_with_an_error_and_serves_the_new_one(
    tmp_path: Path, demo_process: EngineProcess
) -> None:
    engines = EngineProcess, EngineProcess, lambda *_: demo_process  # the second is for several replies at a time
    async with serving(tmp_path, *engines) as (chat, place), client(place) as editor:
        old = chat.session.engine
        assert isinstance(old, EngineProcess)
        ends = {str(token): -100 for token in demo_process.end_tokens}
        body = ASKED | {"max_tokens": 100_000, "logit_bias": ends, "stream": True}
        async with editor.stream("POST", "/v1/chat/completions", json=body) as reply:
            lines = reply.aiter_lines()
            assert (await anext(lines)).startswith("data: ")
            chat.screen.host.load(replace(DEMO, name="other"))
            told = [json.loads(line[6:]) async for line in lines if line.startswith("data: {")]
        assert "or loads another model" in told[-1]["error"]["message"]
        await chat.until("other is ready", "serving: 0 answered")
        assert "Join two or more" in await say(place)
        assert old.kept.is_closed


@piloted
async def test_a_model_for_one_reply_at_a_time_is_loaded_again_for_editors(tmp_path: Path) -> None:
    first, again = ScriptedEngine("one [wait]two"), ScriptedEngine("three")
    first.limits = replace(EDITORS, max_waiting=None)
    asked = []

    def opened_again(pair: object, options: Any, on_progress: object) -> ScriptedEngine:
        asked.append((options.slots, options.limits))
        return again

    async with opened(tmp_path / "chats.db", first, opened_again, size=WIDE) as chat:
        await chat.say("Q")
        await chat.until("one")
        await chat.say(f"/serve {tmp_path / 's.sock'}")
        await chat.until("Editor access begins after this reply", "one", gone="serving:")
        first.go.set()
        await chat.until("one two", "serving: 0 answered")
        assert (asked, first.closed) == ([(4, EDITORS)], True)


@pytest.mark.parametrize("wish", ["it fails", "it is given up"])
def test_where_it_is_not_loaded_again_the_chat_goes_on_and_says_that_editors_have_no_access(
    tmp_path: Path, wish: str
) -> None:
    @piloted
    async def run() -> None:
        first = ScriptedEngine("Still here.")
        first.limits = replace(EDITORS, max_waiting=None)

        def opened_again(pair: object, options: object, on_progress: Any) -> ScriptedEngine:
            while wish != "it fails" and on_progress("target", 0.5):
                pass
            if wish == "it fails":
                raise ModelError("It is damaged.")
            raise KeyboardInterrupt

        async with opened(tmp_path / "chats.db", first, opened_again, size=WIDE) as chat:
            await chat.say(f"/serve {tmp_path / 's.sock'}")
            if wish != "it fails":
                await chat.until("Loading")
                await chat.press("escape")
            await chat.until("Editor access is off, because", gone="serving:")
            await chat.ask("Q")
            await chat.until("Still here.")

    run()
