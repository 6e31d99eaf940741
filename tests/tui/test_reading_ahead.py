"""The chat lets the engine read the next prompt while it is typed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.tui import between_replies as typed
from app.tui.between_replies import complete_words
from runtime.core.errors import SettingsError
from runtime.engine import Beginning, ChatPrompt, Chunk, Message
from runtime.engine.engine import Ask
from tests.support.scripted import ScriptedEngine
from tests.support.tui import ChatPilot, chats_path, opened, piloted, session_with
from tests.support.waiting import PATIENCE

path = chats_path


class Reader(ScriptedEngine):
    """Notes what it is to read ahead, and ends that when it is told."""

    def __init__(self, *replies: str) -> None:
        super().__init__(*replies)
        self.facts = replace(self.facts, reads_ahead=True)
        self.ahead = list[str]()
        self.sinks = list[Callable[[Chunk | Exception], object]]()
        self.refuses = False

    def add(self, ask: Ask, sink: Callable[[Chunk | Exception], object]) -> int:
        assert ask.is_ahead
        assert ask.max_tokens == 0
        assert isinstance(ask.prompt, Beginning)
        first, second = (shown(talk) for talk in (ask.prompt.first, ask.prompt.second))
        assert first == second
        assert ask.prompt.first != ask.prompt.second
        self.ahead.append(first)
        if self.refuses:
            raise SettingsError("Nothing is read ahead: it is off.")
        self.sinks.append(sink)
        return len(self.sinks)

    def answer(self, *given: Any) -> Iterator[Chunk]:
        """Ends what is read ahead, as every engine does."""
        for sink in self.sinks:
            sink(Chunk("", finish_reason="cancelled"))
        return super().answer(*given)

    def end(self, finish_reason: str = "length") -> None:
        """Ends the last one."""
        self.sinks[-1](Chunk("", finish_reason=finish_reason))


def shown(talk: Any) -> str:
    """The conversation in a line, without the word that stands for what comes."""
    assert isinstance(talk, ChatPrompt)
    return " | ".join(message.content for message in talk.messages)[:-2]


def test_the_last_word_is_left_out_until_it_is_complete() -> None:
    assert [*map(complete_words, ["", "Wh", "What is", "What is ", " What\nis\n", "a  b"])] == [
        "", "", "What", "What is", "What\nis", "a",
    ]  # fmt: skip
    assert complete_words("one " + 10**6 * "x") == "one"


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    monkeypatch.setattr(typed, "PAUSE", 0.05)
    monkeypatch.setattr(typed, "LOOK", 0.02)
    found = Reader("One two three.")
    yield found
    found.go.set()  # else a reply would wait for ever after a failure


async def until(chat: ChatPilot, is_so: Callable[[], bool]) -> None:
    """Waits until that is so."""
    end = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < end
        await chat.pilot.pause(0.01)


async def a_moment(chat: ChatPilot) -> None:
    """Waits for several looks."""
    for _ in range(10):
        await chat.pilot.pause(0.02)


@piloted
async def test_complete_words_and_files_are_read_while_the_rest_is_typed(
    path: Path, engine: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    Path("note.txt").write_text("remember\n")
    async with opened(path, engine) as chat:
        screen = chat.screen
        screen.prompt.begin("@note.txt Wha")
        await until(chat, lambda: engine.ahead == ["note.txt:\n```txt\nremember\n```\n\n@note.txt"])
        screen.prompt.begin("@note.txt What is th")
        await a_moment(chat)
        assert len(engine.ahead) == 1  # the file is still being read
        engine.end()
        await until(chat, lambda: len(engine.ahead) == 2)
        assert engine.ahead[1].endswith("@note.txt What is")
        screen.prompt.begin("Something else ")  # which does not go on where the text before ended
        await until(chat, lambda: engine.ahead[2:] == ["Something else"])


@piloted
async def test_the_conversation_is_read_after_a_reply_and_nothing_during_one(path: Path, engine: Reader) -> None:
    engine.replies = ["[wait]One", "<think>hm</think>Two"]
    async with opened(path, engine) as chat:
        screen = chat.screen
        screen.prompt.begin("Why?")
        await chat.press("enter")
        await until(chat, lambda: screen.host.is_replying)
        await a_moment(chat)
        engine.ahead.clear()
        screen.prompt.begin("And then ")
        await a_moment(chat)
        assert engine.ahead == []
        engine.go.set()
        await until(chat, lambda: engine.ahead == ["Why? | One | And then"])


@piloted
async def test_commands_are_no_questions_and_refusals_are_not_asked_again(path: Path, engine: Reader) -> None:
    engine.refuses = True
    async with opened(path, engine) as chat:
        screen = chat.screen
        screen.prompt.begin("/set temperature 0 ")
        await a_moment(chat)
        assert engine.ahead == []
        screen.prompt.begin("What is ")
        await until(chat, lambda: engine.ahead == ["What is"])
        await a_moment(chat)
        assert engine.ahead == ["What is"]


@piloted
async def test_nothing_is_read_ahead_where_it_is_switched_off(path: Path, engine: Reader) -> None:
    engine.facts = replace(engine.facts, reads_ahead=False)
    async with opened(path, engine) as chat:
        chat.screen.prompt.begin("What is ")
        await a_moment(chat)
    assert engine.ahead == []


def test_a_question_after_a_reply_leaves_its_thought_out(tmp_path: Path) -> None:
    session = session_with(tmp_path / "chats.db", Reader("x"))
    branch = session.branch()
    branch.ask("Why?")
    reply = branch.begin_reply({})
    session.store.update_message(reply.id, "<think>hm</think>Because.", {})
    assert branch.prompt("And")[-2:] == [Message("assistant", "Because."), Message("user", "And")]
    assert branch.prompt()[-1].content == "<think>hm</think>Because."


@piloted
async def test_what_another_request_ended_is_read_again_after_a_while(
    path: Path, engine: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(typed, "AGAIN", 0.1)
    async with opened(path, engine) as chat:
        chat.screen.prompt.begin("What is ")
        await until(chat, lambda: engine.ahead == ["What is"])
        await a_moment(chat)
        assert engine.ahead == ["What is"]
        engine.end("cancelled")
        await until(chat, lambda: engine.ahead == ["What is"] * 2)
        engine.end()
        await a_moment(chat)
        assert engine.ahead == ["What is"] * 2


@piloted
async def test_an_error_ends_reading_ahead_and_not_the_chat(
    path: Path, engine: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(path, engine) as chat:
        monkeypatch.setattr(type(chat.session.settings), "sampling", lambda *given: 1 / 0)
        chat.screen.prompt.begin("What is ")
        await until(chat, lambda: "nothing is read ahead any more" in "".join(chat.session.log))
        assert engine.ahead == []
