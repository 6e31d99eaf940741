"""The command line in a process of its own."""

from __future__ import annotations

import subprocess
import sys

SLIPSTREAM = [sys.executable, "-m", "app.cli"]
QUESTION = "What does os.path.join do?"


def slipstream(*args: str, stdin: str | None = None, **more: object) -> subprocess.CompletedProcess[str]:
    fed = {"input": stdin} if stdin is not None else {"stdin": subprocess.DEVNULL}
    return subprocess.run([*SLIPSTREAM, *args], capture_output=True, text=True, timeout=120, check=False, **fed, **more)  # type: ignore[call-overload]


def failing(*args: str, code: int = 1) -> str:
    """Standard error of a call that must fail in one line."""
    done = slipstream(*args)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    if code == 1:
        assert done.stderr.count("\n") == 1
        assert done.stdout == ""
    return " ".join(done.stderr.split())
