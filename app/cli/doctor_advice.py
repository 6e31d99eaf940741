"""Interprets the doctor's findings: when drafts pay here, which models fit, what is wrong and how to fix it.

Text and arithmetic only.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from runtime.core.recompiling import BACKENDS, RPC, compiled_with, pinned, reinstall, with_images
from runtime.models.registry import Pair

KINDS = {"Q8_0": 8.5, "Q4_K": 4.5}  # bits per weight of common quantizations
SHARE = 0.7  # of the free memory for weights; the rest is for the context and other programs
BUSY = 0.5  # runnable processes per core from which on the machine counts as busy
LENGTHS = 1, 2, 3, 4, 6, 8
Problems = Iterator[tuple[str, str]]  # each with its remedy
PYTHON = f'"{sys.executable}" -m pip'  # the pip of this program's environment
# The sign that a backend would be useful here, by its name at compile time
SIGNS = {
    "CUDA": "an NVIDIA driver",
    "HIP": "AMD's compute driver",
    "METAL": "Apple silicon",
    "VULKAN": "a GPU with a render device",
}
# Compiled wheels of llama-cpp-python, by its own documentation: an index for each of these versions of CUDA, and one
# each for the processor, Metal, Vulkan and ROCm. Which versions of the package each has is not known here.
WHEELS = "https://abetlen.github.io/llama-cpp-python/whl/"
INDEXES = {"": "cpu", "METAL": "metal", "VULKAN": "vulkan", "HIP": "rocm72"}
CUDA_INDEXES = "11.8", "12.1", "12.2", "12.3", "12.4", "12.5", "13.0", "13.2"
INSTRUCTIONS = {
    "avx2": "AVX2",
    "avx512f": "AVX512",
    "fma": "FMA",
    "f16c": "F16C",
    "asimddp": "DOTPROD",
    "i8mm": "MATMUL_INT8",
    "asimdhp": "FP16_VA",
    "sve": "SVE",
}  # name in the processor's flags to llama.cpp's name


def break_even(seconds: Mapping[int, float], k: int, draft_seconds: float) -> float | None:
    """Return the acceptance rate at which drafts of k tokens are as fast as plain decode, or None if there is none.

    `seconds` is a pass's time by width. Each draft token is assumed to be accepted with the same probability.
    """
    wanted = (k * draft_seconds + seconds[k + 1]) / seconds[1]  # tokens per pass
    if wanted > k + 1:
        return None
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(middle**i for i in range(k + 1)) < wanted else (low, middle)
    return high


def lengths_in_words(seconds: Mapping[int, float], draft_seconds: float) -> list[str]:
    """Return what the measured times mean for each draft length."""
    found = []
    for k in (k for k in LENGTHS if k + 1 in seconds):
        share = break_even(seconds, k, draft_seconds)
        what = f"pay here if more than {10 * share:.1f} in 10 are accepted" if share is not None else "cannot pay here"
        found.append(f"drafts of {k} {what}")
    return found


def models_that_fit(free_bytes: int) -> dict[str, float]:
    """Return the billions of parameters that fit into memory, by quantization."""
    return {kind: SHARE * free_bytes * 8 / bits / 1e9 for kind, bits in KINDS.items()}


def pairs_that_fit(free_bytes: int, pairs: Iterable[Pair]) -> list[str]:
    """Return the names of the pairs whose size is known and fits, largest first."""
    fit = [pair for pair in pairs if 0 < pair.size <= SHARE * free_bytes]
    return [pair.name for pair in sorted(fit, key=lambda pair: -pair.size)]


def prebuilt(version: str, backend: str = "", cuda: str = "") -> str:
    """Return the command that installs a prebuilt llama-cpp-python, if its index has that version. "" if no index is
    known for the driver's CUDA version.
    """
    index = INDEXES.get(backend) or cuda_index(cuda)
    if not index:
        return ""
    flags = f"--force-reinstall --no-deps --only-binary llama-cpp-python --extra-index-url {WHEELS}{index}"
    call = "& " if sys.platform == "win32" else ""
    return f'{call}{PYTHON} install {flags} "{pinned(version)}"'


def cuda_index(version: str) -> str:
    """Return the newest index for a driver of that CUDA version. "" if there is none."""
    parts = [tuple(map(int, each.split("."))) for each in (*CUDA_INDEXES, version) if each.count(".") == 1]
    known, most = parts[: len(CUDA_INDEXES)], parts[-1] if version else (0, 0)
    fit = [each for each in known if each <= most]
    return "cu{}{}".format(*max(fit)) if fit else ""


def for_backend(found: Mapping[str, Any], backend: str) -> str:
    """Return the commands that install llama.cpp with this backend. The prebuilt wheel, which needs no compiler, comes
    first.
    """
    version = found["versions"].get("llama-cpp-python", "")
    quick = prebuilt(version, backend, found.get("cuda_version", ""))
    compiled = reinstall(version, backend, python=PYTHON)
    return f"{quick}\n    or, where there is no such wheel: {compiled}" if quick else compiled


def with_rpc(found: Mapping[str, Any]) -> str:
    """Return the command that adds RPC to the current backends."""
    kept = compiled_with(found["backends"])
    return reinstall(found["versions"].get("llama-cpp-python", ""), *dict.fromkeys((RPC, *kept)), python=PYTHON)


def with_mtmd(found: Mapping[str, Any]) -> str:
    """Return the command that compiles the current backends, and the part that encodes images."""
    return with_images(found["versions"].get("llama-cpp-python", ""), found["backends"], PYTHON)


def problems(found: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the problems, each with its remedy."""
    checks = (unused_workers, unused_gpu, lacking_instructions, busy, inexact, unquoted, full_memory)
    return [{"problem": what, "remedy": remedy} for check in checks for what, remedy in check(found)]


def unused_workers(found: Mapping[str, Any]) -> Problems:
    """Yield the problems of workers that cannot be used."""
    workers = found.get("workers", ())
    if workers and RPC not in found["backends"]:
        yield "Workers are named, but llama.cpp is compiled without RPC.", with_rpc(found)
        return
    for worker in workers:
        if worker["problem"]:
            what, _, remedy = worker["problem"].rpartition(". ")
            yield f"{what}.", remedy


def unused_gpu(found: Mapping[str, Any]) -> Problems:
    """Yield the problem of a GPU that llama.cpp was not compiled for. Vulkan counts only if nothing better fits."""
    here, used = found["gpu_hardware"], {device["backend"] for device in found["devices"] if device["backend"] != RPC}
    wanted = [name for name in here if name != "VULKAN"] or here
    if not wanted or used & {BACKENDS[name] for name in here}:
        return
    backend, sign = BACKENDS[wanted[0]], SIGNS[wanted[0]]
    if backend in found["backends"]:
        yield (
            f"There is {sign}, and llama.cpp is compiled for {backend}, but it finds no device.",
            "Check that the driver works and that no environment variable (such as CUDA_VISIBLE_DEVICES) hides the "
            "device.",
        )
    else:
        yield f"There is {sign}, but llama.cpp is compiled without {backend}.", for_backend(found, wanted[0])


def lacking_instructions(found: Mapping[str, Any]) -> Problems:
    """Yield the problem of instruction sets that the processor has and the library does not use."""
    lacking = [
        name
        for flag, name in INSTRUCTIONS.items()
        if flag in found["processor_flags"] and name not in found["cpu_features"]
    ]
    if lacking:
        what = f"llama.cpp is compiled without {', '.join(lacking)}, which this processor has."
        yield what, reinstall(found["versions"].get("llama-cpp-python", ""), python=PYTHON)


def busy(found: Mapping[str, Any]) -> Problems:
    """Yield the problem of other programs that use the processor."""
    if found["busy_processes"] > BUSY * found["cores"]:
        n = f"{found['busy_processes']:.1f} processes want to run (cores: {found['cores']})"
        yield f"{n}, so the measured speeds are too low.", "Close what is running, and run `slipstream doctor` again."


def inexact(found: Mapping[str, Any]) -> Problems:
    """Yield the problem of kernels that round differently when several rows are decoded in one pass."""
    if found["is_exact"]:
        return
    is_gpu = any(device["backend"] not in ("CPU", RPC) for device in found["devices"])
    yield (
        f"Passes of different widths round differently ({found['exactness']}), so replies with a seed draft less.",
        "No wider pass is both exact and free on this GPU. `--fast` drafts anyway; a close choice may then differ."
        if is_gpu
        else "Use `--exact` for bit-identical kernels.",
    )


def unquoted(found: Mapping[str, Any]) -> Problems:
    """Yield the problem of a chat template that changes messages, so that control tokens in them take effect."""
    if roles := ", ".join(found.get("unquoted_roles", ())):
        template = f"The chat template of {found['pair']}"
        yield (
            f"{template} changes messages ({roles}), so control tokens in them take effect.",
            "Send the model no text that you do not trust, or choose another one.",
        )


def full_memory(found: Mapping[str, Any]) -> Problems:
    """Yield the problem of less free memory than small models need."""
    if found["memory_free_bytes"] < 2**30:
        free = f"Only {found['memory_free_bytes'] / 1e9:.1f} GB of memory are free."
        yield free, "Close what is running, or use a small model."
