"""Commands that compile llama.cpp again, with another part or backend. Text only."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

# By llama-cpp-python's name of a backend at compile time: llama.cpp's name at run time
BACKENDS = {"CUDA": "CUDA", "HIP": "ROCm", "METAL": "MTL", "VULKAN": "Vulkan"}
RPC = "RPC"  # the backend that has devices on other machines, by both names


def compiled_with(backends: Iterable[str]) -> list[str]:
    """Return the names at compile time of the backends that llama.cpp has at run time."""
    found = set(backends)
    return [name for name, theirs in (*BACKENDS.items(), (RPC, RPC)) if theirs in found]


def reinstall(version: str, *backends: str, others: Sequence[str] = (), python: str = "pip") -> str:
    """Return the command that recompiles llama-cpp-python on this system, with `others` of CMake's options; `python` is
    the pip of its environment.
    """
    flags = "--force-reinstall --no-cache-dir --no-deps --no-binary llama-cpp-python"
    pip = f'{python} install {flags} "{pinned(version)}"'
    option = " ".join([*(f"-DGGML_{backend}=on" for backend in backends), *others])
    if not option:
        return pip
    return f'$env:CMAKE_ARGS = "{option}"; & {pip}' if sys.platform == "win32" else f'CMAKE_ARGS="{option}" {pip}'


def with_images(version: str, backends: Iterable[str], python: str = "pip") -> str:
    """Return the command that compiles the present backends, and the part that encodes images."""
    return reinstall(version, *compiled_with(backends), others=("-DLLAVA_BUILD=on",), python=python)


def pinned(version: str) -> str:
    """Return llama.cpp's package in that version; in any, where the library was put there by hand."""
    return f"llama-cpp-python=={version}" if version else "llama-cpp-python"
