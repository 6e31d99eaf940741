"""Commands that measure: what ends them ends with a sentence, and their exit codes are what they were."""

from __future__ import annotations

import signal
import subprocess

import psutil
import pytest

from app.cli.errors import must_guard
from tests.support.cli import SLIPSTREAM
from tests.support.waiting import wait_for


@pytest.mark.parametrize(
    ("number", "code", "said"), [(signal.SIGSEGV, 1, "ended by SIGSEGV"), (signal.SIGTERM, -signal.SIGTERM, "")]
)
def test_a_crash_is_a_sentence_and_a_signal_of_the_persons_is_not(number: int, code: int, said: str) -> None:
    command = [*SLIPSTREAM, "bench", "--quick"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: bool(psutil.Process(process.pid).children()))
    psutil.Process(process.pid).children()[0].send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == code
    assert said in errors
    assert "Traceback" not in errors


def test_only_commands_with_models_of_their_own_are_guarded() -> None:
    assert must_guard(["models", "pair", "demo"])
    assert must_guard(["doctor"])
    assert not must_guard(["models", "list"])
    assert not must_guard(["run", "bench"])
    assert not must_guard(["bench", "--help"])
