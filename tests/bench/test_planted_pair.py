"""`python -m bench.instruments.planted`: what it writes is a pair that the command line runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_the_command_writes_a_pair_that_the_command_line_runs(tmp_path: Path) -> None:
    python, files = [sys.executable, "-m"], ["target.gguf", "draft.gguf", "prompts.txt"]
    options = ["--shape", "tiny", "--draft", "tiny", "--acceptance", "0.9", "0.1"]
    writing = [*python, "bench.instruments.planted", str(tmp_path), *options]
    said = subprocess.check_output(writing, text=True)
    assert [line.split()[0] for line in said.splitlines()] == [str(tmp_path / name) for name in files]
    target, draft, asked = (str(tmp_path / name) for name in files)
    assert Path(asked).read_text(encoding="utf8").startswith("Go on after ")
    asking = ["run", "Go", "--raw", "--model", target, "--draft", draft, "--temperature", "0", "--max-tokens", "9"]
    command = [*python, "app.cli", *asking]
    assert len(subprocess.check_output(command, text=True, stdin=subprocess.DEVNULL).split()) == 9
