"""Reads this machine's memory: the whole of it, this process's cgroup, GPUs, stalls, macOS's pressure level.

Values that cannot be read are left out. Knows files and system calls; pressure.py judges the values.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import psutil

from runtime.core.cores import sysctl_number
from runtime.core.pressure import Level, MemoryPool, Reading

V1 = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
V2 = "memory.max", "memory.current", "inactive_file"
HOSTS = "CPU", "BLAS", "ACCEL"  # ggml's backends whose devices use the machine's memory
WORKER = "RPC"  # ggml's backend of devices on other machines
MACOS = {2: 1, 4: 2}  # dispatch_source_memorypressure: warning and critical, as levels


class MemoryReader:
    """Reads this machine's memory.

    `devices` are ggml's: backend, name, free and total bytes; `root` is the parent of /proc and /sys.
    """

    def __init__(
        self, devices: Callable[[], Sequence[tuple[str, str, int, int]]] = tuple, root: Path = Path("/")
    ) -> None:
        self._devices = devices
        self._cgroups = list(cgroups(root))
        files = [group.limit.with_name("memory.pressure") for group in self._cgroups] + [root / "proc/pressure/memory"]
        self._pressure = next((file for file in files if text_of(file)), None)

    def __call__(self) -> Reading:
        """Return the values that can be read, without the others."""
        machine = attempt(lambda: [of_machine(psutil.virtual_memory())])
        total = machine[0].total if machine else sys.maxsize
        groups = [pool for group in self._cgroups for pool in attempt(partial(group.pools, total))]
        gpus = attempt(lambda: [of_device(*device) for device in self._devices() if device[0] not in HOSTS])
        some, full = stalls(text_of(self._pressure)) if self._pressure else (0.0, 0.0)
        return Reading((*machine, *groups, *gpus), some, full, macos_level() if sys.platform == "darwin" else Level.OK)


@dataclass(frozen=True, slots=True)
class Cgroup:
    """The memory files of one cgroup."""

    limit: Path
    usage: Path
    stat: Path
    cache: str  # the name in `stat` of memory that can be dropped without writing it to disk

    def pools(self, total: int) -> list[MemoryPool]:
        """Return the memory left under its limit; none where there is no limit below the machine's memory."""
        limit = text_of(self.limit).strip()
        if not limit.isdigit() or not 0 < int(limit) < total:
            return []
        usage = int(text_of(self.usage))
        counts = dict(line.split(" ", 1) for line in text_of(self.stat).splitlines() if " " in line)
        return [
            MemoryPool(
                "this process's cgroup",
                max(0, int(limit) - usage + min(int(counts.get(self.cache, "0")), usage)),
                int(limit),
            )
        ]


def attempt(read: Callable[[], Iterable[MemoryPool]]) -> list[MemoryPool]:
    """Return the pools that `read` finds; none where it fails."""
    try:
        return list(read())
    except (OSError, ValueError, RuntimeError, LookupError, psutil.Error):
        return []


def of_machine(memory: Any) -> MemoryPool:
    """Return the machine's memory by psutil, where free is what can be allocated without swapping."""
    return MemoryPool("this machine", int(memory.available), int(memory.total))


def of_device(kind: str, name: str, free: int, total: int) -> MemoryPool:
    """Return a device's memory; a worker's is named by its address."""
    is_far = kind == WORKER
    return MemoryPool(f"the worker {name}" if is_far else name, free, total, True, is_far)


def text_of(file: Path) -> str:
    """Return a small file's text; "" where there is none."""
    try:
        return file.read_text(encoding="ascii", errors="replace")
    except (OSError, ValueError):
        return ""


def cgroups(root: Path) -> Iterator[Cgroup]:
    """Yield the cgroups that limit this process's memory, its own first; versions 1 and 2."""
    for line in text_of(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        kinds, _, path = rest.partition(":")
        if kinds and "memory" not in kinds.split(","):
            continue
        own = PurePosixPath(path.lstrip("/"))
        inside = [own, *own.parents] if ".." not in own.parts else [PurePosixPath()]  # a container may see only its own
        mounts = ("memory",) if kinds else ("", "unified")
        limit, usage, cache = V1 if kinds else V2
        folders = [root / "sys/fs/cgroup" / mount / part for mount in mounts for part in inside]
        yield from (
            Cgroup(folder / limit, folder / usage, folder / "memory.stat", cache)
            for folder in folders
            if (folder / limit).exists()
        )


def stalls(text: str) -> tuple[float, float]:
    """Return the shares of the last ten seconds from Linux's pressure stall information; 0 for a missing one."""
    shares = {"some": 0.0, "full": 0.0}
    for line in text.splitlines():
        kind, _, rest = line.partition(" avg10=")
        try:
            shares[kind] = float(rest.split(" ")[0]) / 100
        except ValueError:
            continue
    return shares["some"], shares["full"]


def macos_level() -> Level:
    """Return macOS's level of memory pressure; OK where it reports none."""
    return Level(MACOS.get(sysctl_number("kern.memorystatus_vm_pressure_level"), 0))


def own_bytes(process: int) -> int:
    """Return the bytes of memory that a process holds and no file backs, which are those that no longer count as free.

    Where the system does not tell them apart, all count so; 0 for a process that has ended.
    """
    try:
        info: Any = psutil.Process(process).memory_info()
    except psutil.Error:
        return 0
    if (private := getattr(info, "private", None)) is not None:  # on Windows
        return int(private)
    return int(info.rss - info.shared) if hasattr(info, "shared") else sys.maxsize


def mapped_bytes(process: int, file: Path) -> int:
    """Return the bytes of a file that a process has mapped and that are in memory, which another process that maps it
    does not take again; 0 where the system does not tell.
    """
    try:
        maps = psutil.Process(process).memory_maps()
        return sum(int(each.rss) for each in maps if Path(each.path) == file.resolve())
    except (psutil.Error, AttributeError, OSError):  # macOS has none
        return 0


def trim_heap() -> None:
    """Make the C library return freed memory to the system, where it keeps some (glibc)."""
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)):
        trim(0)
