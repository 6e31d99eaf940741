"""A benchmark is confined to a cgroup, or says in a sentence why not: with a stand-in for systemd-run and a tree of
cgroup files.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.cgroup import confined
from runtime.memory.pressure import Level, Thresholds, judge
from runtime.memory.system import MemoryReader

LIMIT = 1 << 30


def tree(root: Path, limit: str, current: int = 100 << 20) -> MemoryReader:
    """A machine whose cgroup v2 says this."""
    folder = root / "sys/fs/cgroup/bench.scope"
    folder.mkdir(parents=True)
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text("0::/bench.scope\n")
    for name, text in {"memory.max": limit, "memory.current": str(current), "memory.stat": "inactive_file 0\n"}.items():
        (folder / name).write_text(f"{text}\n")
    return MemoryReader(root=root)


def test_the_limit_is_found_from_inside(tmp_path: Path) -> None:
    place = confined(LIMIT, tree(tmp_path, str(LIMIT)))
    assert (place.total, place.free) == (LIMIT, LIMIT - (100 << 20))


@pytest.mark.parametrize(("limit", "found"), [("max", "none"), (str(LIMIT // 2), f"{LIMIT // 2:,}")])
def test_a_limit_that_is_not_in_force_is_said(tmp_path: Path, limit: str, found: str) -> None:
    with pytest.raises(
        SystemExit, match=f"does not hold this process to 1,073,741,824 bytes \\(limits found: {found}\\)"
    ):
        confined(LIMIT, tree(tmp_path, limit))


@pytest.mark.parametrize(("taken", "level"), [(0.5, Level.OK), (0.93, Level.TIGHT), (0.98, Level.CRITICAL)])
def test_the_usual_thresholds_see_a_full_cgroup_on_an_empty_machine(tmp_path: Path, taken: float, level: Level) -> None:
    reading = tree(tmp_path, str(LIMIT), int(taken * LIMIT))()
    own = [place for place in reading.pools if "cgroup" in place.name]
    assert judge(type(reading)(tuple(own)), Thresholds()).level == level


def run_with(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    """`bench.ballast --cgroup` where systemd-run is this script."""
    stand_in = folder / "systemd-run"
    stand_in.write_text(f"#!/bin/sh\n{script}\n")
    stand_in.chmod(0o755)
    command = [sys.executable, "-m", "bench.ballast", "--cgroup", str(LIMIT), "--phase", "0.1"]
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=120)


def test_a_refusal_is_one_sentence_with_the_reason(tmp_path: Path) -> None:
    done = run_with(tmp_path, "echo 'Failed to connect to bus: No medium found' >&2; exit 1")
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        done.stderr
        == "A cgroup of 1,073,741,824 bytes was refused (Failed to connect to bus: No medium found). Nothing was run.\n"
    )


def test_a_limit_that_did_not_take_effect_stops_the_run_before_it_begins(tmp_path: Path) -> None:
    done = run_with(tmp_path, 'while [ "$1" != "-p" ]; do shift; done; shift 4; exec "$@"')
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("The kernel does not hold this process to 1,073,741,824 bytes")
