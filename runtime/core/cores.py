"""The processor: its cores, how many of them are fast ones, its name; and the two clocks that time decoding: wall time
and the CPU time of this thread, which agree on an otherwise idle machine. Knows what systems say of it; no passes.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

CAPACITIES = Path("/sys/devices/system/cpu")  # cpuN/cpu_capacity: Linux's measure of a core, where they differ
SLOW = 0.7  # of the fastest core's capacity, below which a core is a slow one: medium ones of phones are above it
Clock = Callable[[], float]  # seconds since an arbitrary moment
FINE = 1e-5  # seconds, the required clock resolution; on Windows, thread time has a resolution of 1/60 s


def usable() -> list[int]:
    """Return the numbers of the cores that this process may use."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def n_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(usable())


def n_fast(folder: Path = CAPACITIES) -> int:
    """Return the number of usable cores, without the slow ones of a machine that has faster ones too."""
    if sys.platform == "darwin":
        return min(n_cores(), sysctl_number("hw.perflevel0.physicalcpu") or n_cores())
    known = Counter(found for core in usable() if (found := capacity(folder / f"cpu{core}" / "cpu_capacity")))
    return sum(n for value, n in known.items() if value > SLOW * max(known)) or n_cores()


def capacity(file: Path) -> int:
    """Return the number in a file; 0 where there is none."""
    try:
        return int(file.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0


def brand() -> str:
    """Return the processor's name, where macOS knows it."""
    text = ctypes.create_string_buffer(256)
    return text.value.decode("utf8", "replace") if _sysctl("machdep.cpu.brand_string", text) else ""


def sysctl_number(name: str) -> int:
    """Return a whole number of macOS's kernel; 0 where it has none by that name."""
    value = ctypes.c_int(0)
    return value.value if _sysctl(name, value) else 0


def _sysctl(name: str, place: ctypes.c_int | ctypes.Array[ctypes.c_char]) -> bool:
    """Read a value of macOS's kernel into that place. Return whether there is one."""
    if sys.platform != "darwin":
        return False
    read, size = getattr(ctypes.CDLL(None), "sysctlbyname", None), ctypes.c_size_t(ctypes.sizeof(place))
    return read is not None and not read(
        name.encode(), ctypes.byref(place), ctypes.byref(size), None, ctypes.c_size_t(0)
    )


def wall() -> float:
    """Return the wall time in seconds."""
    return time.perf_counter()


def steadiest() -> Clock:
    """Return the clock that other processes disturb least: thread time, or wall time where thread time is coarse."""
    return time.thread_time if time.get_clock_info("thread_time").resolution < FINE else time.perf_counter
