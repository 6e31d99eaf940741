"""The engine's life in the chat, without a chat: what the host keeps and posts, in which order."""

from __future__ import annotations

import asyncio
import time
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from textual import on
from textual.app import App, ComposeResult
from textual.message import Message as Event

from app.chats.branch import ChatBranch
from app.reply_text import marks_of, pieces_of, text_of
from app.tui import between_replies as typed
from app.tui import engine_host
from app.tui.between_replies import Unsent
from app.tui.engine_host import EngineHost, ReplyEnded, ReplyGrew
from app.tui.pace import TypingGap
from app.tui.replies import PromptRead, ReplyRequest
from app.tui.session import ModelFailed, ModelReady, Session
from runtime.core.errors import ModelError
from runtime.engine import Sampling
from tests.support.scripted import ScriptedEngine
from tests.support.tui import PATIENCE, chat_app, piloted, session_with


class HostApp(App[None]):
    """Hears what the host posts."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.host, self.heard = EngineHost(session, TypingGap()), list[Event]()

    def compose(self) -> ComposeResult:
        yield self.host

    @on(ModelReady)
    @on(ModelFailed)
    @on(PromptRead)
    @on(ReplyGrew)
    @on(ReplyEnded)
    def hear(self, event: Event) -> None:
        self.heard.append(event)

    async def until(self, kind: type[Event]) -> Event:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if found := [event for event in self.heard if isinstance(event, kind)]:
                return found[-1]
            await asyncio.sleep(0.01)
        raise AssertionError(f"no {kind.__name__} among {self.heard}")


def request(session: Session) -> ReplyRequest:
    branch = ChatBranch(session.store)
    branch.ask("Q")
    message = branch.begin_reply()
    return ReplyRequest(message, branch.prompt(), Sampling(temperature=0), None)


@piloted
async def test_a_pair_is_opened_and_a_reply_is_made_kept_and_told(tmp_path: Path) -> None:
    session = session_with(tmp_path / "chats.db", ScriptedEngine("one two three"))
    app = HostApp(session)
    async with app.run_test():
        app.host.load(session.pair)
        assert app.host.is_busy
        await app.until(ModelReady)
        assert not app.host.is_busy
        app.host.start(request(session))
        assert app.host.is_replying
        ended = await app.until(ReplyEnded)
        assert isinstance(ended, ReplyEnded)
        assert not app.host.is_busy
        assert [type(event) for event in app.heard if not isinstance(event, ReplyGrew)] == [
            ModelReady,
            PromptRead,
            ReplyEnded,
        ]
        kept = session.store.branch(ended.message_id)[-1]
        assert text_of(ended.pieces) == kept.content == "one two three"
        stored = marks_of(pieces_of(kept.content, kept.facts))
        assert marks_of(ended.pieces) == stored == [(3, ""), (4, "model"), (6, "")]
    session.store.close()


@piloted
async def test_what_came_of_a_cancelled_reply_is_kept(tmp_path: Path) -> None:
    session = session_with(tmp_path / "chats.db", ScriptedEngine("one [wait]two"))
    app = HostApp(session)
    async with app.run_test():
        app.host.load(session.pair)
        await app.until(ModelReady)
        app.host.start(request(session))
        await app.until(ReplyGrew)
        assert text_of(app.host.collect()) == "one"
        app.host.cancel()
        ended = await app.until(ReplyEnded)
        assert isinstance(ended, ReplyEnded)
        assert ended.facts["end"] == "stopped"
        assert session.store.branch(ended.message_id)[-1].content == "one"
    session.store.close()


@piloted
async def test_without_a_model_the_host_stays_busy_until_another_is_open(tmp_path: Path) -> None:
    session = session_with(tmp_path / "chats.db", ModelError("x.gguf is damaged."), ScriptedEngine("fine"))
    app = HostApp(session)
    async with app.run_test():
        app.host.load(session.pair)
        failed = await app.until(ModelFailed)
        assert isinstance(failed, ModelFailed)
        assert (failed.reason, app.host.is_busy) == ("x.gguf is damaged.", True)
        app.host.load(session.pair)
        await app.until(ModelReady)
        assert not app.host.is_busy
    session.store.close()


@piloted
async def test_what_fails_while_the_chat_closes_does_not_hide_why_it_closes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(self: object) -> None:
        raise OSError("no space left")

    def fail() -> None:
        raise RuntimeError("the first error")

    async def run() -> None:
        async with app.run_test() as pilot:
            app.call_later(fail)
            await pilot.pause(0.5)

    app, printed = chat_app(tmp_path / "chats.db", ScriptedEngine("fine")), StringIO()
    for module in (engine_host, typed):
        monkeypatch.setattr(module, "SAVE", 999.0)  # only what closes the chat saves
    monkeypatch.setattr(EngineHost, "save", full_disk)
    monkeypatch.setattr(Unsent, "keep", full_disk)
    monkeypatch.setattr(app, "error_console", Console(file=printed, width=200))
    with pytest.raises(RuntimeError, match="the first error"):
        await run()
    app._print_error_renderables()
    assert "the first error" in printed.getvalue()
    assert "OSError: no space left" not in printed.getvalue()
    app.session.store.close()
