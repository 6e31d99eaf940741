"""What this machine says of its memory: cgroups, stalls and devices, from files that tests write."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from runtime.core import memory
from runtime.core.memory import MemoryReader, own_bytes, stalls
from runtime.core.pressure import MIB, Level, Reading, Thresholds, judge
from tests.support.memory import PAGES


def place(root: Path, **files: str) -> MemoryReader:
    """A System that finds these files under `root`, their names with "__" for "/"."""
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return MemoryReader(root=root)


def group(system: MemoryReader) -> list[tuple[int, int]]:
    return [(found.free, found.total) for found in system().pools if "cgroup" in found.name]


def test_without_proc_the_machine_itself_is_still_known(tmp_path: Path) -> None:
    found = MemoryReader(root=tmp_path)()
    assert [place.name for place in found.pools] == ["this machine"]
    assert found.pools[0].total == psutil.virtual_memory().total
    assert (found.stalled_some, found.stalled_full) == (0, 0)


V2 = {
    "proc__self__cgroup": "0::/a/b\n",
    "sys__fs__cgroup__a__b__memory.current": "700\n",
    "sys__fs__cgroup__a__b__memory.max": "1000\n",
}


def test_limits_of_cgroup_v2_and_of_those_above_are_read(tmp_path: Path) -> None:
    above = {"sys__fs__cgroup__a__memory.max": "900", "sys__fs__cgroup__a__memory.current": "850"}
    files = {
        "sys__fs__cgroup__a__b__memory.stat": "anon 5\ninactive_file 100\n",
        "sys__fs__cgroup__a__b__memory.pressure": "some avg10=12.50 avg60=0",
    }
    system = place(tmp_path, **V2, **above, **files)
    assert group(system) == [(400, 1000), (50, 900)]
    assert system().stalled_some == 0.125


@pytest.mark.parametrize(("taken", "level"), [(0.5, Level.OK), (0.93, Level.TIGHT), (0.98, Level.CRITICAL)])
def test_the_usual_thresholds_see_a_full_cgroup_on_an_empty_machine(tmp_path: Path, taken: float, level: Level) -> None:
    limit = 1 << 30
    changed = {
        "sys__fs__cgroup__a__b__memory.max": f"{limit}",
        "sys__fs__cgroup__a__b__memory.current": f"{int(taken * limit)}",
    }
    own = tuple(found for found in place(tmp_path, **V2 | changed)().pools if "cgroup" in found.name)
    assert judge(Reading(own), Thresholds()).level == level


def test_a_limit_of_cgroup_v1_is_read(tmp_path: Path) -> None:
    at = "sys__fs__cgroup__memory__x__memory."
    files = {f"{at}limit_in_bytes": "5000", f"{at}usage_in_bytes": "6000", f"{at}stat": "total_inactive_file 9999999"}
    system = place(tmp_path, proc__self__cgroup="9:cpu:/y\n4:memory:/x\n", **files)
    assert group(system) == [(5000, 5000)]


@pytest.mark.parametrize(
    "odd",
    [
        {"sys__fs__cgroup__a__b__memory.max": "max\n"},
        {"sys__fs__cgroup__a__b__memory.max": "9223372036854771712"},
        {"sys__fs__cgroup__a__b__memory.max": "0"},
        {"sys__fs__cgroup__a__b__memory.max": "lots"},
        {"sys__fs__cgroup__a__b__memory.current": ""},
        {"sys__fs__cgroup__a__b__memory.stat": "inactive_file lots\n"},
        {"proc__self__cgroup": "rubbish"},
        {"proc__self__cgroup": "0::/../../etc\n"},
        {"proc__self__cgroup": "::\n:::\n"},
    ],
)
def test_odd_cgroup_files_are_left_out(tmp_path: Path, odd: dict[str, str]) -> None:
    system = place(tmp_path, **{**V2, **odd})
    assert group(system) == []
    assert system().pools[0].total > 0


def test_stalls_are_shares_and_rubbish_is_none() -> None:
    assert stalls("some avg10=3.00 avg60=1.00 total=9\nfull avg10=1.50 avg60=0.00 total=9\n") == (0.03, 0.015)
    assert stalls("some avg10=much\nnothing") == (0, 0)


def test_devices_without_memory_or_that_fail_are_left_out() -> None:
    listed = [("CPU", "a processor", 5, 9), ("CUDA", "a GPU", 7 * MIB, 9 * MIB)]
    assert [found.name for found in MemoryReader(lambda: listed)().pools if found.is_device] == ["a GPU"]

    def fail() -> list[tuple[str, str, int, int]]:
        raise OSError("the driver is gone")

    assert not any(found.is_device for found in MemoryReader(fail)().pools)


def test_this_machine_can_be_read() -> None:
    found = MemoryReader()()
    assert 0 < found.pools[0].free <= found.pools[0].total


@pytest.mark.parametrize(
    ("info", "own"),
    [({"rss": 9, "shared": 4}, 5), ({"rss": 9, "private": 3}, 3), ({"rss": 9}, sys.maxsize)],
    ids=["Linux", "Windows", "macOS"],
)
def test_what_a_process_holds_itself_is_told_as_far_as_the_system_does(
    info: dict[str, int], own: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psutil.Process, "memory_info", lambda process: SimpleNamespace(**info))
    assert own_bytes(os.getpid()) == own


@pytest.mark.skipif(sys.platform != "linux", reason="a page is what Linux counts in")
@PAGES
def test_what_linux_counts_in_pages_is_told_in_bytes(
    page: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "statm").write_text("900 90 30 5 0 400 0\n")
    monkeypatch.setattr(psutil._psplatform, "PAGESIZE", page)  # type: ignore[attr-defined]
    monkeypatch.setattr(psutil, "Process", psutil._psplatform.Process)  # type: ignore[attr-defined]
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    assert own_bytes(1) == 60 * page


def test_macos_tells_its_level_of_pressure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "sysctl_number", {"kern.memorystatus_vm_pressure_level": 4}.get)
    assert memory.macos_level() == Level.CRITICAL
    monkeypatch.setattr(memory, "sysctl_number", lambda name: 0)
    assert memory.macos_level() == Level.OK
