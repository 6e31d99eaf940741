"""`python -m bench.amx`: what it says without AMX, and of a process that AMX's kernels ended."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from bench import amx
from bench.amx import Found, in_process, verdict
from tests.support.shapes import TINY, write_random

FINE = Found(ms=(4.0, 4.0, 8.0, 8.0, 8.0), choices=(1, 2), largest=(3.0, 4.0))


def test_without_amx_that_is_all_it_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(amx, "FLAGS", tmp_path / "cpuinfo")
    (tmp_path / "cpuinfo").write_text("flags : fpu avx2 amx_tile")
    monkeypatch.setattr(sys, "argv", ["amx", str(tmp_path / "built")])
    amx.main()
    assert capsys.readouterr().out.strip() == amx.NONE_HERE
    assert not (tmp_path / "built").exists()


def test_a_process_that_is_ended_is_a_verdict() -> None:
    found = in_process("-c", "import os; os.abort()", environment=dict(os.environ))
    assert verdict(found, FINE).startswith("No: the process with AMX ended with code -6")


@pytest.mark.parametrize("other", [Found(ms=FINE.ms, choices=(1, 3), largest=FINE.largest),
                                   Found(ms=FINE.ms, choices=FINE.choices, largest=(3.0, float("nan")))])  # fmt: skip
def test_other_logits_are_no_gain(other: Found) -> None:
    assert verdict(other, FINE) == "No: the logits are others than without AMX."


def test_agreement_is_told_with_the_gain() -> None:
    assert verdict(Found(ms=(2.0,) * 5, choices=FINE.choices, largest=FINE.largest), FINE).startswith("Yes")


def test_both_ways_compute_and_agree_where_neither_has_tiles(tmp_path: Path) -> None:
    model = write_random(tmp_path / "tiny.gguf", TINY)
    found = [
        in_process("-m", "bench.amx", str(model), "--compute", way, environment=dict(os.environ))
        for way in ("amx", "today")
    ]
    assert verdict(*found).startswith("Yes")
