"""What is printed cannot command the terminal, and an interrupted reply is told by its exit code."""

from __future__ import annotations

import ast
import json
import logging
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.cli.oneshot import OneshotRequest, printed
from app.cli.run import PrintOptions
from app.terminal import InertFormatter, inert, marked, print_json, print_note, print_text
from bench.instruments.toy import facts
from runtime.engine import Chunk, Sampling
from runtime.engine.stats import Stats
from tests.support.cli import slipstream

ROOT = Path(__file__).parents[2]
COMMANDS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
PRINTERS = "print", "typer.echo", "typer.secho", "sys.stderr.write"


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


def test_what_is_printed_passes_one_door(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "\x1b]0;x\a\x9b2J\x7f\ud800"
    print_text(hostile)
    print_note(hostile)
    print_json({hostile: [hostile]})
    out, err = capsys.readouterr()
    assert not COMMANDS.search(out + err)
    print_text("a\u202eb\u2066c")
    assert capsys.readouterr().out == "a\ufffdb\ufffdc\n"
    assert json.loads(out.splitlines()[1]) == {hostile: [hostile]}


def test_nothing_else_prints() -> None:
    """A reply is written as it comes (oneshot.py), through `inert` and `marked`."""
    for path in sorted((ROOT / "app").rglob("*.py")):
        found = [ast.unparse(each) for each in ast.walk(ast.parse(path.read_text("utf8"))) if is_print(each)]
        assert path.name == "terminal.py" or found in ([], ["print(flush=True)"]), path


def is_print(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in (
        "print",
        "typer.echo",
        "typer.secho",
        "sys.stderr.write",
    )


def test_a_log_line_cannot_command_the_terminal() -> None:
    record = logging.LogRecord("x", logging.WARNING, "x.py", 1, "%s cannot be written", ("\x1b]0;x\a",), None)
    assert InertFormatter().format(record) == "␛]0;x␇ cannot be written"


WRONG = [
    "{}", "trace {}", "run --{}", "run --{}=1", "run x --max-tokens {}", "run x -m {}", "run x --regex ({}",
    "run x --trace /no/{}", "bench --kinds {}", "bench --ks {}",
    *(f"models {each}" for each in ("{}", "info {}", "rm {}", "convert-head {} out")),
    *(f"run x --{name} {{}}" for name in ("prediction", "json-schema", "lark", "drafters", "rpc", "draft")),
    *(f"serve --{name} {{}}" for name in ("slot-save-path", "allow-origin", "api-key-file", "host", "port")),
]  # fmt: skip


@pytest.mark.parametrize("words", WRONG)
def test_no_error_of_usage_commands_the_terminal(words: str) -> None:
    done = slipstream(*(each.format("\x1b]0;x\a\x9b2J") for each in words.split()))
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    assert not COMMANDS.search(done.stdout + done.stderr)


@pytest.mark.parametrize(("reason", "code"), [("cancelled", 130), ("stop", 0), ("length", 0)])
def test_the_exit_code_says_whether_a_reply_was_broken_off(
    reason: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    chunks = [Chunk("Hello"), Chunk("", finish_reason=reason, stats=Stats())]
    engine: Any = SimpleNamespace(facts=facts(), reply=lambda *args, **named: iter(chunks), close=lambda: None)
    request = OneshotRequest("Hi", "", False, None, (), Sampling(), None, None)
    unused: Any = SimpleNamespace()
    assert printed(unused, unused, request, PrintOptions(), lambda *args: engine).code == code
    assert capsys.readouterr().out == "Hello\n"
