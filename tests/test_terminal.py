"""What is printed cannot command the terminal, and an interrupted reply is told by its exit code."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from app.cli.oneshot import OneshotRequest, Printed, run
from app.terminal import inert, marked
from bench.instruments.facts import facts
from runtime.engine import Chunk, Sampling
from runtime.engine.stats import Stats


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J", "␛[2J"),
        ("\x1b]0;title\a", "␛]0;title␇"),
        ("\x9b2J", "\ufffd2J"),
        ("a\r\b\x7f", "a␍␈␡"),
        ("\ud800", "\ufffd"),
        ("one\n\ttwo é", "one\n\ttwo é"),
    ],
)
def test_control_characters_are_shown_and_not_obeyed(text: str, shown: str) -> None:
    assert inert(text) == shown
    assert marked([text], [False]) == shown


@pytest.mark.parametrize(("reason", "code"), [("cancelled", 130), ("stop", 0), ("length", 0)])
def test_the_exit_code_says_whether_a_reply_was_broken_off(
    reason: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    chunks = [Chunk("Hello"), Chunk("", finish_reason=reason, stats=Stats())]
    engine: Any = SimpleNamespace(facts=facts(), reply=lambda *args, **named: iter(chunks), close=lambda: None)
    request = OneshotRequest("Hi", "", False, None, (), Sampling(), None, None)
    output, unused = Printed(stats=False, as_json=False, color=False), SimpleNamespace()
    assert run(unused, unused, request, output, lambda *args: engine) == code  # type: ignore[arg-type]
    assert capsys.readouterr().out == "Hello\n"
