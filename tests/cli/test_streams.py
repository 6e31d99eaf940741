"""`slipstream run` on pipes, full disks and terminals, and when it is interrupted."""

from __future__ import annotations

import os
import pty
import select
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.cli import QUESTION, SLIPSTREAM
from tests.support.quick import others_slow


def test_the_numbers_begin_on_a_line_of_their_own() -> None:
    done = subprocess.run(
        [*SLIPSTREAM, "run", QUESTION, "--stats"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    assert "\n          prompt  " in done.stdout


def test_a_closed_pipe_is_no_error() -> None:
    process = subprocess.Popen(
        [*SLIPSTREAM, "run", QUESTION], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.wait(60) == 0
    assert process.stderr.read() == b""


def test_a_full_disk_is_said_in_one_line() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*SLIPSTREAM, "run", QUESTION],
            stdout=full,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 1
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr


def read_terminal(fd: int, until: float) -> bytes:
    """What a pseudo-terminal shows until it closes or the time is up."""
    shown = b""
    while time.monotonic() < until and select.select([fd], [], [], max(0.0, until - time.monotonic()))[0]:
        try:
            data = os.read(fd, 4096)
        except OSError:
            break
        if not data:
            break
        shown += data
    return shown


def on_a_terminal(*args: str) -> tuple[subprocess.Popen[bytes], int]:
    ours, theirs = pty.openpty()
    process = subprocess.Popen([*SLIPSTREAM, *args], stdout=theirs, stderr=theirs, stdin=theirs, start_new_session=True)
    os.close(theirs)
    return process, ours


def test_accepted_draft_tokens_are_coloured_on_a_terminal_when_asked() -> None:
    for color, marked in (((), False), (("--color",), True)):
        process, fd = on_a_terminal("run", QUESTION, "--drafters", "model", "--fixed-k", "3", *color)
        shown = read_terminal(fd, time.monotonic() + 60)
        assert process.wait(60) == 0
        assert (b"\x1b[36m" in shown.rpartition(b"\x1b[?25h")[2]) == marked  # behind the progress bar


def test_ctrl_c_in_the_middle_ends_it_as_in_a_shell_and_keeps_what_came() -> None:
    process = subprocess.Popen(
        [*SLIPSTREAM, "run", QUESTION, "--temperature", "5", "--top-p", "1", "--min-p", "0", "--top-k", "0", "--seed",
        "1"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    first = process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode in (-signal.SIGINT, 0)  # 0: the reply had ended before the signal came
    assert first
    assert (out.endswith(b"\n"), err) == (True, b"")


@pytest.mark.parametrize("closed", others_slow(["<&-", ">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"], ["<&- >&- 2>&-"]))
def test_streams_that_are_not_there_are_no_error(closed: str, tmp_path: Path) -> None:
    code, out, err = in_a_shell(f'run "What is a list?" --stats {closed}')
    assert code == 0
    assert bool(out) == (">&-" not in closed.replace("2>&-", ""))
    assert "Traceback" not in err
    assert in_a_shell(f"run x -m nope {closed}")[0] == 1


def in_a_shell(command: str) -> tuple[int, str, str]:
    done = subprocess.run(
        ["sh", "-c", f"exec {shlex.join(SLIPSTREAM)} {command}"], capture_output=True, text=True, timeout=60,
        check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_models_run_where_a_program_has_no_streams(tmp_path: Path) -> None:
    script = (
        "import os\nfor number in range(3): os.close(number)\n"
        "from runtime.engine import Options\nfrom runtime.models.registry import load_registry\n"
        "from runtime.engine.process.client import EngineProcess\n"
        "engine = EngineProcess(load_registry()['demo'], Options(threads=1))\n"
        "ids = engine.tokenize('x')\nengine.close()\nraise SystemExit(40 + len(ids))"
    )
    assert subprocess.run([sys.executable, "-c", script], timeout=60, check=False).returncode == 41
