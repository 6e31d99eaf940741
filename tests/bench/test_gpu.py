"""`python -m bench.gpu`: whatever a part does, the report says so and the next one runs."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
from gguf import GGUFReader

from bench import gpu
from bench.drafters import Setting, Way, opened
from bench.gpu import Part, parts, run_all, write
from bench.instruments.laws import exact_law, least_draws, p_value
from bench.instruments.shapes import FILE_TYPES, K_QUANTS, requantize, write_random
from bench.prove import FALSE_ALARM
from runtime.backends.heads import nodes
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.models.registry import load_registry

HANGS = (
    "import subprocess, sys, time\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    "print(child.pid, flush=True)\ntime.sleep(600)"
)
NEVER = float("inf")
FOUR = [
    Part("well", ("-c", "print('all is well')"), 60),
    Part("fails", ("-c", "import sys; print('before'); sys.exit('it broke')"), 60),
    Part("hangs", ("-c", HANGS), 3),
    Part("lonely", ("-c", "print('compared')"), 60, "raise SystemExit(1)"),
]


def test_a_part_that_fails_or_hangs_is_a_line_of_the_report(tmp_path: Path) -> None:
    outcomes = list(run_all(FOUR, dict(os.environ), NEVER))
    assert [each.how for each in outcomes[:3]] == ["", "failed with code 1", "ended after its 3 seconds"]
    assert outcomes[3].how.startswith("left out")
    write(tmp_path / "report.md", outcomes)
    report = (tmp_path / "report.md").read_text()
    assert "1 of 4 parts ended well." in report
    assert "it broke" in report
    assert "all is well" in report
    child = int(outcomes[2].output)
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


def test_the_time_is_for_all_parts_together() -> None:
    assert [each.how for each in run_all(FOUR[:2], dict(os.environ), 0.0)] == [
        "left out, because the time was spent"
    ] * 2


def test_what_a_part_says_is_cut_at_its_beginning(tmp_path: Path) -> None:
    part = Part("talks", ("-c", "print('\\n'.join(map(str, range(500))))"), 60)
    write(tmp_path / "report.md", list(run_all([part], dict(os.environ), NEVER)))
    lines = (tmp_path / "report.md").read_text().splitlines()
    assert "499" in lines
    assert "100" not in lines
    assert f"... {500 - gpu.KEPT} lines before ..." in lines


def test_every_part_names_a_module_that_is_there() -> None:
    named = {part.command[1] for part in [*parts(1), *parts(0.001)] if part.command[1].startswith("bench.")}
    assert named == {f"bench.{name}" for name in ("widths", "drafters", "plain", "clients", "prove", "peers")}
    for name in named:
        assert Path(gpu.__file__).with_name(f"{name.removeprefix('bench.')}.py").is_file()


@pytest.mark.parametrize("size", [1, 0.05, 0.001])
def test_the_least_proof_can_fail(size: float) -> None:
    command = next(part.command for part in parts(size) if "bench.prove" in part.command)
    assert int(command[command.index("--draws") + 1]) >= least_draws()
    few = np.eye(1, exact_law().size, exact_law().argmax()).reshape(exact_law().shape) * least_draws()
    assert p_value(few, exact_law()) < FALSE_ALARM


def test_random_k_quants_are_mixed_as_the_library_mixes_them(tmp_path: Path) -> None:
    shape = replace(K_QUANTS, layers=9)
    written = write_random(tmp_path / "written.gguf", shape, k_quants=True)
    source = write_random(tmp_path / "q8_0.gguf", shape)
    wanted = requantize(source, FILE_TYPES["Q4_K_M"], tmp_path / "wanted.gguf")
    mixed = [{each.name: each.tensor_type for each in GGUFReader(path).tensors} for path in (written, wanted)]
    assert mixed[0] == mixed[1]
    model = LlamaModel(written)
    backend = LlamaBackend(model, 64, 4)
    assert 0.1 < backend.forward(np.arange(8, dtype=np.int32)).std() < 10
    backend.close()
    model.close()


def test_libraries_that_are_not_there_are_told_by_every_part(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable, "-m", "bench.gpu", "--libraries", str(tmp_path / "none"), "--report",
            str(tmp_path / "report.md"), "--only", "devices",
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert "failed with code 1" in done.stdout
    assert "not found" in (tmp_path / "report.md").read_text()


def test_a_drafter_that_cannot_be_had_is_left_out_of_the_others_figures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Early exit, where layers are on a device."""
    monkeypatch.setattr(nodes.ggml, "ggml_backend_buffer_is_host", lambda buffer: False)
    ways = {name: Way(tuple(name.split("+"))) for name in ("ngram", "layerskip", "ngram+layerskip")}
    with ExitStack() as stack:
        engines = opened(Setting(load_registry()["demo"], [], 1, 1), ways, stack)
        assert list(engines) == list(ways) == ["ngram", "ngram+layerskip"]
        assert ways["ngram+layerskip"].drafters == ("ngram",)
    assert "layerskip is left out" in capsys.readouterr().out
