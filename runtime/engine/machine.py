"""Describes this machine: memory, its bandwidth, devices, how llama.cpp was compiled, and what passes of a pair cost.

Measures and queries; draws no conclusions. Loads the library only to query it or to open a pair.
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
from typing import Any

import numpy as np
import psutil

from runtime.core.cores import brand, n_cores
from runtime.loading.pass_timing import measure, pass_runner, timed
from runtime.models.registry import Pair
from runtime.speculative.control.costs import PassCosts

DRIVER_TIMEOUT = 10.0  # seconds for a driver's program
BANDWIDTH_SECONDS = 0.4
BANDWIDTH_BYTES = 2**28  # far larger than caches
MAX_WIDTH = 9  # rows of a measured pass: the longest default draft, and one
PASS_SECONDS = 4.0  # for measuring passes; widths beyond it are left out
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
    return cpu_info("model name") or brand() or platform.processor() or platform.machine()


def cpu_info(*names: str) -> str:
    """Return the first entry of such a name that Linux has about the processor; "" on other systems."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf8", errors="replace").splitlines() if info.exists() else []
    return next((line.partition(": ")[2] for line in lines if line.startswith(names)), "")


def cpu_features() -> list[str]:
    """Return the instruction sets and options that llama.cpp was compiled with for the CPU."""
    from runtime.backends import library as compiled

    return compiled.cpu_features()


def backends() -> list[str]:
    """Return the backends that llama.cpp was compiled with, such as CUDA and CPU."""
    from runtime.backends import library as compiled

    return compiled.backends()


def encodes_images() -> bool:
    """Return whether llama.cpp was compiled with its part that encodes images."""
    from runtime.backends.mtmd_library import is_built

    return is_built()


def devices() -> list[Device]:
    """Return the devices that llama.cpp sees, including the CPU."""
    from runtime.backends import library as compiled

    return [Device(*found) for found in compiled.devices()]


def processor_flags() -> set[str]:
    """Return the instruction sets that the processor reports; empty on systems other than Linux."""
    return set(cpu_info("flags", "Features").split())


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


def diagnose(pair: Pair, workers: tuple[str, ...] = ()) -> dict[str, Any]:
    """Open the pair with these workers, and return plain data: seconds of a target pass by width, seconds of a token of
    the draft model (0 without one), exactness, and roles in whose messages names of control tokens become those tokens.

    Raises ModelError and other errors of loading.
    """
    from runtime.drafters.model import ModelDrafter
    from runtime.engine.loaded import LoadedEngine  # the library
    from runtime.loading.options import Options

    engine = LoadedEngine(pair, Options(rpc=workers))
    try:
        costs, exactness = PassCosts(), engine.facts.exactness
        drafting = [drafter for drafter in engine.decoder.active.drafters if isinstance(drafter, ModelDrafter)]
        measure(costs, pass_runner(engine.decoder.target.backend), MAX_WIDTH, time.perf_counter() + PASS_SECONDS)
        seconds = [timed(pass_runner(drafter.backend), 1, 5, float("inf")) for drafter in drafting]
        return {
            "pair": pair.name,
            "pass_seconds": {str(width): each for width, each in sorted(costs.widths(0).items())},
            "draft_seconds": sum(seconds),
            "exactness": str(exactness),
            "unquoted_roles": tuple(engine.unquoted_roles()),
            "is_exact": exactness.width == exactness.tried or exactness.padded > 0,
        }
    finally:
        engine.close()
