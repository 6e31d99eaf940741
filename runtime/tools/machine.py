"""Describes this machine: memory, its bandwidth, devices, and the features that llama.cpp was compiled with.

Measures and queries; draws no conclusions. Knows no model, and loads the library only to query it.
"""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import psutil

from runtime.loading.pass_timing import n_cores

DRIVER_TIMEOUT = 10.0  # seconds for a driver's program
BANDWIDTH_SECONDS = 0.4
BANDWIDTH_BYTES = 2**28  # far larger than caches
LIBRARIES = "slipstream", "llama-cpp-python", "llguidance", "numpy", "huggingface-hub"


@dataclass(frozen=True, slots=True)
class Device:
    """A device that this build of llama.cpp can use."""

    backend: str  # such as CUDA, Metal, CPU
    name: str
    free_bytes: int
    total_bytes: int


def memory_bandwidth() -> float:
    """Return the bytes per second that all cores together read, the best over a short time."""
    n = n_cores()
    slices = np.array_split(
        np.ones(min(BANDWIDTH_BYTES, psutil.virtual_memory().available // 4) // 4, dtype=np.float32), n
    )
    n_bytes, best, ends = sum(part.nbytes for part in slices), float("inf"), time.perf_counter() + BANDWIDTH_SECONDS
    with ThreadPoolExecutor(n) as threads:
        while best == float("inf") or time.perf_counter() < ends:
            began = time.perf_counter()
            list(threads.map(np.max, slices))
            best = min(best, time.perf_counter() - began)
    return n_bytes / best


def processor() -> str:
    """Return the processor's name."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf8", errors="replace").splitlines() if info.exists() else []
    return next(
        (line.partition(": ")[2] for line in lines if line.startswith("model name")),
        platform.processor() or platform.machine(),
    )


def cpu_features() -> list[str]:
    """Return the instruction sets and options that llama.cpp was compiled with for the CPU."""
    from runtime.backends import library as compiled

    return compiled.cpu_features()


def backends() -> list[str]:
    """Return the backends that llama.cpp was compiled with, such as CUDA and CPU."""
    from runtime.backends import library as compiled

    return compiled.backends()


def devices() -> list[Device]:
    """Return the devices that llama.cpp sees, including the CPU."""
    from runtime.backends import library as compiled

    return [Device(*found) for found in compiled.devices()]


def processor_flags() -> set[str]:
    """Return the instruction sets that the processor reports; empty on systems other than Linux."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf8", errors="replace").splitlines() if info.exists() else []
    return set(next((line.partition(": ")[2] for line in lines if line.startswith(("flags", "Features"))), "").split())


def gpu_hardware() -> list[str]:
    """Return the GPU interfaces for which this machine has a driver, of CUDA, HIP, METAL and VULKAN."""
    signs = {
        "CUDA": Path("/proc/driver/nvidia/version").exists() or shutil.which("nvidia-smi"),
        "HIP": Path("/dev/kfd").exists(),
        "METAL": sys.platform == "darwin" and platform.machine() == "arm64",
        "VULKAN": any(Path("/dev/dri").glob("renderD*")),
    }
    return [name for name, found in signs.items() if found]


def cuda_version() -> str:
    """Return the newest CUDA version that the NVIDIA driver supports, such as 12.4; "" if there is none."""
    try:
        done = subprocess.run(["nvidia-smi"], capture_output=True, text=True, timeout=DRIVER_TIMEOUT, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    found = re.search(r"CUDA Version: *(\d+\.\d+)", done.stdout)
    return found[1] if found else ""


def versions() -> dict[str, str]:
    """Return the versions of Python and of the relevant libraries."""
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
