"""What llama.cpp was compiled for and what it can compute on. Asks the library; knows no model."""

from __future__ import annotations

import ctypes

import llama_cpp.llama_cpp as lib

from runtime.backends import library


def cpu_features() -> list[str]:
    """Instruction sets and options of the CPU's kernels, as the library names them."""
    library.start()
    text = lib.llama_print_system_info().decode()
    return [part.split("=")[0].split(":")[-1].strip() for part in text.split("|") if part.split("=")[-1].strip() == "1"]


def backends() -> list[str]:
    """What the library was compiled for, whether or not there is a device."""
    library.start()
    ggml = lib._lib
    ggml.ggml_backend_reg_count.restype = ctypes.c_size_t
    ggml.ggml_backend_reg_get.restype = ctypes.c_void_p
    ggml.ggml_backend_reg_name.restype = ctypes.c_char_p
    found = (
        ctypes.c_void_p(ggml.ggml_backend_reg_get(ctypes.c_size_t(i))) for i in range(ggml.ggml_backend_reg_count())
    )
    return [ggml.ggml_backend_reg_name(registered).decode() for registered in found]


def devices() -> list[tuple[str, str, int, int]]:
    """What computes: backend, name, free and total bytes of memory."""
    library.start()
    ggml = lib._lib
    for name, result in (("get", ctypes.c_void_p), ("description", ctypes.c_char_p), ("backend_reg", ctypes.c_void_p)):
        getattr(ggml, f"ggml_backend_dev_{name}").restype = result
    ggml.ggml_backend_reg_name.restype = ctypes.c_char_p
    ggml.ggml_backend_dev_count.restype = ctypes.c_size_t
    return [
        _device(ggml, ctypes.c_void_p(ggml.ggml_backend_dev_get(ctypes.c_size_t(i))))
        for i in range(ggml.ggml_backend_dev_count())
    ]


def _device(ggml: ctypes.CDLL, device: ctypes.c_void_p) -> tuple[str, str, int, int]:
    free, total = ctypes.c_size_t(0), ctypes.c_size_t(0)
    ggml.ggml_backend_dev_memory(device, ctypes.byref(free), ctypes.byref(total))
    backend = ggml.ggml_backend_reg_name(ctypes.c_void_p(ggml.ggml_backend_dev_backend_reg(device)))
    return (
        backend.decode(),
        ggml.ggml_backend_dev_description(device).decode("utf8", "replace"),
        free.value,
        total.value,
    )
