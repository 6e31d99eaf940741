"""The command line: in this process, which is quick, or in one of its own, for streams and signals."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from typer.testing import CliRunner

from app.cli.errors import must_guard
from app.cli.main import main
from tests.support.waiting import PATIENCE

SLIPSTREAM = [sys.executable, "-m", "app.cli"]
QUESTION = "What does os.path.join do?"


@dataclass(frozen=True, slots=True)
class Done:
    """A command that has ended."""

    returncode: int
    stdout: str
    stderr: str


def slipstream(*args: str, stdin: str | None = None, env: Mapping[str, str] | None = None) -> Done:
    """Run the command in this process; `env` is added to the environment.

    A command that is guarded runs in a process of its own here too, as its child writes to the real streams.
    """
    if must_guard(args):
        done = spawned(*args, stdin=stdin, env={**os.environ, **(env or {})})
        return Done(done.returncode, done.stdout, done.stderr)
    code: object = 0
    with CliRunner().isolation(stdin, env) as streams:
        try:
            main(args)
        except SystemExit as ended:
            code = ended.code
        sys.stdout.flush()
        sys.stderr.flush()
        stdout, stderr = (stream.getvalue().decode("utf8") for stream in streams[:2])
    return Done(code if isinstance(code, int) else 0, stdout, stderr)


def spawned(*args: str, stdin: str | None = None, **more: object) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    fed = {"input": stdin} if stdin is not None else {"stdin": subprocess.DEVNULL}
    return subprocess.run(
        [*SLIPSTREAM, *args], capture_output=True, text=True, timeout=PATIENCE, check=False, **fed, **more
    )  # type: ignore[call-overload]


@contextmanager
def beside(*args: str) -> Iterator[subprocess.Popen[str]]:
    """Run the command while the block runs; a test that fails does not wait for its end."""
    with subprocess.Popen([*SLIPSTREAM, *args], stderr=subprocess.PIPE, text=True) as command:
        try:
            yield command
        finally:
            command.kill()


def failing(*args: str, code: int = 1) -> str:
    """Return the standard error of a call that must fail with one line."""
    done = slipstream(*args)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    if code == 1:
        assert done.stderr.count("\n") == 1
        assert done.stdout == ""
    return " ".join(done.stderr.split())
