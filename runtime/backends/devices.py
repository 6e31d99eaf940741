"""The features llama.cpp was compiled with, and the devices it can compute on. Queries the library; knows no model."""

from __future__ import annotations

import ctypes

import llama_cpp.llama_cpp as lib

from runtime.backends import library
from runtime.backends.private_llama import ggml


def cpu_features() -> list[str]:
    """Return the instruction sets and options of the CPU's kernels, as the library names them."""
    library.start()
    text = lib.llama_print_system_info().decode()
    return [part.split("=")[0].split(":")[-1].strip() for part in text.split("|") if part.split("=")[-1].strip() == "1"]


def backends() -> list[str]:
    """Return the backends that the library was compiled with, whether or not there is a device."""
    library.start()
    found = map(ggml.ggml_backend_reg_get, range(ggml.ggml_backend_reg_count()))
    return [ggml.ggml_backend_reg_name(registered).decode() for registered in found]


def devices() -> list[tuple[str, str, int, int]]:
    """Return the devices: backend, name, free and total bytes of memory."""
    return [_device(handle) for handle in library.device_handles()]


def _device(handle: int) -> tuple[str, str, int, int]:
    free, total = ctypes.c_size_t(0), ctypes.c_size_t(0)
    ggml.ggml_backend_dev_memory(handle, ctypes.byref(free), ctypes.byref(total))
    backend = ggml.ggml_backend_reg_name(ggml.ggml_backend_dev_backend_reg(handle))
    name = ggml.ggml_backend_dev_description(handle)
    return backend.decode(), name.decode("utf8", "replace"), free.value, total.value
