"""Hostile chat templates: each ends with a sentence, in bounded time and memory."""

from __future__ import annotations

import resource
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from runtime.conversation import chat_template
from runtime.conversation.chat_template import ChatTemplate, Message
from runtime.core.errors import TemplateError, TemplateLimitError
from runtime.core.watched import WatchedProcesses
from tests import support

SECONDS = 0.3
PATIENCE = 3  # seconds of computing that one step of Python's may take beyond that
MOST = 2**26  # bytes that a rendering may take here
SENTENCE = r"^The model's chat template (failed|cannot be read) \(.+\)\. Use `--raw`"
# Each line is a template by itself: what grows in one step, what doubles sixty times, lists within lists that are short
# until they are written or compared, and what goes on until the time or the room is over
HOSTILE = Path(support.__path__[0], "hostile_templates.jinja").read_text("utf-8").splitlines()


def peak() -> int:
    """Return the most memory that this process ever had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


@pytest.mark.parametrize(
    "source", [pytest.param(source, marks=pytest.mark.slow if i % 12 else ()) for i, source in enumerate(HOSTILE)]
)
def test_a_hostile_template_ends_soon_and_small_and_with_a_sentence(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_template, "SECONDS", SECONDS)
    before = peak()
    with pytest.raises(TemplateError, match=SENTENCE):
        ChatTemplate(source).render([Message("user", "x")])
    assert peak() - before < MOST


@pytest.mark.parametrize(
    "source",
    [
        "{{ 5.5 | round(10 ** 9) }}",
        "{{ strftime_now('%9999999999Y') }}",
        "{{ {'x' * 3000000: 1} | pprint }}",
        "{% set b = namespace(x=[]) %}{% for i in range(60) %}{% set b.x = [b.x, b.x] %}{% endfor %}"
        "{{ 'x' | tojson(b.x) }}",
    ],
)
def test_what_only_looks_hostile_is_written(source: str) -> None:
    ChatTemplate(source).render([Message("user", "x")])


@pytest.mark.parametrize("source", ["{{ raise_exception('x' * 9999999) }}", "{{ messages['x' * 9999999].x }}"])
def test_what_a_template_says_is_wrong_is_cut(source: str) -> None:
    with pytest.raises(TemplateError) as caught:
        ChatTemplate(source).render([Message("user", "x")])
    assert len(str(caught.value)) < 2000


@pytest.mark.parametrize(
    ("limit", "least", "source", "reason"),
    [
        ("SECONDS", 0.2, "{{ messages | length + 9 ** (9 ** 9) }}", "more than 0.2 s"),
        (
            "MEMORY",
            2**24,
            "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
            "of memory",
        ),
    ],
)
def test_what_takes_too_much_is_ended_and_the_next_one_rendered(
    limit: str, least: float, source: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = ChatTemplate("{{ messages[0].content }}")
    with monkeypatch.context() as patch:
        patch.setattr(chat_template, limit, least)
        with pytest.raises(TemplateLimitError, match=reason):
            ChatTemplate(source).render([Message("user", "x")])
    assert good.render([Message("user", "x")]) == "x"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere only the memory that is in use is looked at")
def test_one_step_that_needs_too_much_memory_does_not_begin() -> None:
    start = time.monotonic()
    for _ in range(20):
        with pytest.raises(TemplateLimitError, match="too much memory"):
            ChatTemplate("{{ (messages | length) * 'x' * 10 ** 10 }}").render([Message("user", "x")])
    assert time.monotonic() - start < PATIENCE


def test_renderings_at_the_same_time_do_not_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "SECONDS", 60.0)
    slow, quick = ChatTemplate("{% for i in range(99999) %}{{ range(999) | sum }}{% endfor %}"), ChatTemplate("x")
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(slow.render, [])
        assert [quick.render([]) for _ in range(3)] == ["x"] * 3
        assert not waiting.done()
        for child in psutil.Process().children():  # as if the system had ended it
            if "runtime.conversation.template_sandbox" in child.cmdline():
                child.kill()
        with pytest.raises(TemplateLimitError, match="ends the process"):
            waiting.result()
    with suppress(TemplateLimitError):  # it may not have been noticed that the idle one has ended
        quick.render([])
    assert quick.render([]) == "x"


def test_where_no_process_can_be_started_a_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "PROCESSES", WatchedProcesses("runtime.conversation.no_such_module"))
    with pytest.raises(TemplateLimitError, match="no process can be started"):
        ChatTemplate("x")
