"""What takes long waits for the gap after a key."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from app.tui.pace import TYPING, TypingGap
from tests.support.scripted import ScriptedEngine
from tests.support.tui import chats_path, engine_of, opened, piloted

path = chats_path


class Timers:
    """What is to be done later, and when."""

    def __init__(self) -> None:
        self.set = list[tuple[float, Callable[[], None]]]()

    def __call__(self, seconds: float, work: Callable[[], None]) -> None:
        self.set.append((seconds, work))


def test_nobody_types_so_it_is_done_at_once() -> None:
    done, timers = list[str](), Timers()
    TypingGap().wait(lambda: done.append("drawn"), timers)
    assert done == ["drawn"]
    assert not timers.set


def test_somebody_types_so_it_is_done_once_the_next_key_is_seen() -> None:
    done, timers, gap = list[str](), Timers(), TypingGap()
    gap.note_key()
    gap.wait(lambda: done.append("drawn"), timers)
    assert not done
    gap.use()
    assert done == ["drawn"]
    timers.set[0][1]()
    assert done == ["drawn"]


def test_no_further_key_comes_so_it_is_done_after_a_while() -> None:
    done, timers, gap = list[str](), Timers(), TypingGap()
    gap.note_key()
    gap.wait(lambda: done.append("drawn"), timers)
    ((seconds, work),) = timers.set
    assert seconds == TYPING
    work()
    assert done == ["drawn"]


@piloted
async def test_a_reply_grows_on_the_screen_while_one_types(path: Path) -> None:
    async with opened(path, ScriptedEngine("one two three four [wait]five")) as chat:
        await chat.say("Q")
        while "one two three" not in chat.seen():
            await chat.press("x")
        await chat.until("x")
        engine_of(chat).go.set()
        await chat.until("five")
