"""Hostile chat templates: each ends with a sentence, in bounded time and memory."""

from __future__ import annotations

import resource
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from runtime.conversation import chat_template
from runtime.conversation.chat_template import ChatTemplate, Message, TemplateTooSlowError, run_limited
from runtime.conversation.template_bounds import ROOM, Meter, TooMuchError, weight
from runtime.core.errors import TemplateError
from tests import support

SECONDS = 0.3
PATIENCE = 3  # seconds of computing that one step of Python's may take beyond that
MEMORY = 2**30  # bytes
SENTENCE = r"^The model's chat template failed \(.+\)\. Use `--raw`"
# Each line is a template by itself: what grows in one step, what doubles sixty times, lists within lists that are short
# until they are written or compared, and what goes on until the time or the room is over
HOSTILE = Path(support.__path__[0], "hostile_templates.jinja").read_text("utf-8").splitlines()


def peak() -> int:
    """Return the most memory that this process ever had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


@pytest.mark.parametrize("source", HOSTILE)
def test_a_hostile_template_ends_soon_and_small_and_with_a_sentence(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    template, start, before = ChatTemplate(source), time.process_time(), peak()
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: None)  # some errors reach a callback of the collector
    monkeypatch.setattr(chat_template, "SECONDS", SECONDS)  # too few to compile on a busy machine
    with pytest.raises(TemplateError, match=SENTENCE):
        template.render([Message("user", "x")])
    assert time.process_time() - start < SECONDS + PATIENCE
    assert peak() - before < MEMORY


@pytest.mark.parametrize("source", ["{{ raise_exception('x' * 9999999) }}", "{{ messages['x' * 9999999].x }}"])
def test_what_a_template_says_is_wrong_is_cut(source: str) -> None:
    with pytest.raises(TemplateError) as caught:
        ChatTemplate(source).render([Message("user", "x")])
    assert len(str(caught.value)) < 2000


def test_what_a_rendering_makes_adds_up() -> None:
    meter = Meter()
    for _ in range(4):
        meter.spend(ROOM // 16)
    with pytest.raises(TooMuchError):
        meter.spend(ROOM // 16)


def test_a_list_weighs_what_is_in_its_lists() -> None:
    text = "x" * 1000
    assert weight([[text, [text]], {"key": text}]) > 3000


def lose_the_first_error() -> None:
    """Go on for ten seconds; the first error is lost, as in a callback of the garbage collector."""
    with suppress(TemplateTooSlowError):
        wait()
    wait()


def wait() -> None:
    for _ in range(5_000):
        time.sleep(0.001)


def test_the_time_limit_holds_when_the_first_error_is_lost() -> None:
    start = time.monotonic()
    with pytest.raises(TemplateTooSlowError):
        run_limited(0.05, lose_the_first_error)
    assert time.monotonic() - start < 5


def test_calls_can_be_traced_after_the_time_limit_was_met() -> None:
    """Taking an error back leaves Python 3.11 looking for it in vain, and a traced call never begins then."""
    with suppress(TemplateTooSlowError):
        run_limited(0.01, wait)
    calls: list[str] = []
    sys.setprofile(lambda frame, event, argument: calls.append(frame.f_code.co_name))
    try:
        str(Path("a"))
    finally:
        sys.setprofile(None)
    assert "__str__" in calls
