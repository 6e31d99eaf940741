"""What the chat tells of a prompt that is being read."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.tui.widgets.status import ReadingEstimate, about
from tests.support.scripted import ScriptedEngine
from tests.support.tui import chats_path, engine_of, opened, piloted

path = chats_path


def test_of_a_first_prompt_the_time_left_is_known_after_its_first_piece() -> None:
    estimate = ReadingEstimate()
    estimate.begin(100.0)
    assert estimate.text(100.0) == "Reading the prompt"
    estimate.report(0, 2950, 101.0)
    assert estimate.text(104.0) == "Reading 2,950 tokens"
    estimate.report(256, 2950, 105.0)
    assert estimate.text(105.0) == "Reading 2,950 tokens, 256 done, about 42 s left"


def test_of_a_first_prompt_the_time_left_is_known_at_once_if_the_speed_is_known_from_earlier() -> None:
    estimate = ReadingEstimate()
    estimate.expect(0.02)
    estimate.begin(100.0)
    estimate.report(0, 2950, 101.0)
    assert estimate.text(101.0) == "Reading 2,950 tokens, about 59 s left"
    assert estimate.text(111.0) == "Reading 2,950 tokens, 500 done, about 49 s left"


def test_between_two_reports_it_goes_on_at_the_same_speed_and_never_to_the_end() -> None:
    estimate = ReadingEstimate()
    estimate.begin(0.0)
    estimate.report(0, 1000, 0.0)
    estimate.report(400, 1000, 4.0)
    assert estimate.text(5.0) == "Reading 1,000 tokens, 500 done, about 5 s left"
    assert estimate.share(5.0) == 0.5
    assert estimate.n_read(60.0) == 999
    estimate.report(600, 1000, 5.0)
    assert estimate.n_read(5.0) == 600
    estimate.report(1000, 1000, 6.0)
    assert estimate.share(6.0) == 1.0


def test_the_next_prompt_is_estimated_from_its_beginning_without_the_cached_tokens() -> None:
    estimate = ReadingEstimate()
    estimate.begin(0.0)
    estimate.report(0, 1000, 0.0)
    estimate.report(1000, 1000, 10.0)
    estimate.begin(20.0)
    estimate.report(2000, 2400, 20.0)
    assert estimate.text(20.0) == "Reading 2,400 tokens, 2,000 done, about 4 s left"
    assert estimate.text(23.0) == "Reading 2,400 tokens, 2,300 done"


@pytest.mark.parametrize(("seconds", "said"), [(4.4, "about 4 s"), (89, "about 89 s"), (125, "about 2 minutes")])
def test_a_time_is_said_as_people_say_it(seconds: float, said: str) -> None:
    assert about(seconds) == said


@piloted
async def test_after_enter_it_says_at_once_that_the_prompt_is_read(path: Path) -> None:
    async with opened(path, ScriptedEngine("[wait]Hello.")) as chat:
        await chat.until("scripted is ready")
        await chat.say("Q")
        await chat.until("Reading ", gone="is ready")
        engine_of(chat).go.set()
        await chat.until("Hello.", gone="Reading ")
