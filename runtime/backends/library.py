"""llama.cpp's shared library, loaded once and kept quiet: the last lines of its log are kept to explain errors.

Also lists the features that it was compiled with and the devices it can compute on. Knows llama-cpp-python's low-level
API; knows no model.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections import deque
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from runtime.core.errors import ModelError, NoMemoryError, UnknownKindError

try:
    import llama_cpp
    import llama_cpp.llama_cpp as lib

    from runtime.backends.private_llama import ggml

except (RuntimeError, OSError) as error:  # raised for a missing library, or too little memory for it
    raise ModelError(
        f"llama.cpp could not be loaded ({str(error).rpartition(': ')[2]}). Close other programs, if memory is short, "
        "or install Slipstream again."
    ) from error

# Pointers into arrays, as llama.cpp takes them
INT8_P = ctypes.POINTER(ctypes.c_int8)
UINT8_P = ctypes.POINTER(ctypes.c_uint8)
INT32_P = ctypes.POINTER(ctypes.c_int32)
FLOAT_P = ctypes.POINTER(ctypes.c_float)
LOUD = 3, 4  # ggml.h, enum ggml_log_level: warnings and errors
UNKNOWN = "unknown model architecture"  # in its error message
PROCESSORS = 0, 3  # ggml-backend.h, enum ggml_backend_dev_type: the processor, and accelerators that use its memory
FLAGS = Path("/proc/cpuinfo")
_complaints: deque[str] = deque(maxlen=32)
_far_processors: set[int] = set()


def _remember(level: int, text: bytes, user_data: ctypes.c_void_p) -> None:
    if level in LOUD:
        _complaints.append(text.decode("utf8", "replace").strip())


on_log = lib.llama_log_callback(_remember)  # kept alive, because the library calls it as long as it is loaded


def prefer_exact() -> None:
    """Switch tiled matrix kernels off, which sum in another order than those for one row.

    Has an effect only before the first pass of the process.
    """
    os.environ["GGML_CPU_TILED_MM"] = "0"


@cache
def are_tiled() -> bool:
    """Return whether tiled matrix kernels are used, which the first context fixes for the process."""
    return os.environ.get("GGML_CPU_TILED_MM") != "0"


@cache
def takes_pairs() -> bool:
    """Return whether kernels compute two rows at once where the number of rows is even, as those for Arm's i8mm do."""
    return "MATMUL_INT8 = 1" in version()


@cache
def takes_blocks() -> bool:
    """Return whether kernels compute several rows at once and round otherwise than for one, as llamafile's do for Arm's
    dotprod; with i8mm llama.cpp leaves them out.
    """
    return all(f"{feature} = 1" in version() for feature in ("DOTPROD", "LLAMAFILE"))


@cache
def start() -> None:
    """Initialize the library and redirect its log."""
    lib.llama_log_set(on_log, ctypes.c_void_p(0))
    lib.llama_backend_init()


def leave_gpus() -> None:
    """Compute on the processor alone from now on; only before the first model of the process."""
    start()
    gpus = [device for device in device_handles() if not is_processor(device)]
    for registered in set(map(ggml.ggml_backend_dev_backend_reg, gpus)):
        ggml.ggml_backend_unload(registered)


def complaints() -> list[str]:
    """Return the library's warnings and errors since the last call, oldest first, without names of its functions."""
    lines = [line.split(": ", 1)[-1] for line in _complaints]
    _complaints.clear()
    return lines


def load_error(path: Path, complaints: list[str]) -> ModelError:
    """Return the error for a failed load of `path`: NoMemoryError if memory ran out, UnknownKindError for its kind."""
    text = explain_load(path, complaints)
    if any(UNKNOWN in line for line in complaints):
        return UnknownKindError(text)
    return NoMemoryError(text) if any("allocate" in line for line in complaints) else ModelError(text)


def explain_load(path: Path, complaints: list[str]) -> str:
    """Return one sentence that explains, from the library's log, why it failed to load `path`."""
    text = " ".join(complaints)
    if UNKNOWN in text:
        kind = text.split(f"{UNKNOWN}: ")[1].split("'")[1]
        return (
            f"{path.name} has the architecture '{kind}', which this version of llama.cpp cannot run. Choose another "
            "model."
        )
    if worker := re.search(r"unable to allocate RPC\d+\[([^\]]*)\]", text):
        return (
            f"The worker {worker[1]} has no memory for its layers of {path.name}. Close programs there, or leave it "
            "out of `--rpc`."
        )
    if "not within the file bounds" in text or "failed to read" in text or "unexpectedly reached end" in text:
        return f"{path.name} is damaged or incomplete. Download it again."
    reason = next(
        (line for line in complaints if "error" in line.lower()), complaints[0] if complaints else "no reason given"
    )
    return f"{path.name} could not be loaded ({reason.rstrip('.')}). Check that the file is whole and fits in memory."


def why() -> str:
    """Return the last of these lines, as the reason of a failure."""
    return "; ".join(complaints()[-2:])


def release() -> str:
    """Return the version of llama-cpp-python."""
    return str(llama_cpp.__version__)


def version() -> str:
    """Return the library's own description of its build and of the features that it uses."""
    return f"{release()} {lib.llama_print_system_info().decode()}"


def has_amx() -> bool:
    """Return whether the library was compiled for processors with AMX."""
    return "AMX_INT8 = 1" in version()


@cache
def halves_at_once() -> int:
    """Return the number of F16 values that flash attention adds in one step (ggml-cpu/simd-mappings.h, GGML_F16_STEP).

    A remainder is added one by one. The library does not report whether it was compiled to compute with F16 itself:
    compilers do so for x86 processors that can.
    """
    flags = FLAGS.read_text().split() if FLAGS.exists() else ()
    if "avx512_fp16" in flags and "AVX512_BF16 = 1" in version():
        return 128
    return 64 if "AVX512 = 1" in version() else 32


def device_handles() -> list[int]:
    """Return all devices that the library knows now, as pointers."""
    start()
    return [ggml.ggml_backend_dev_get(i) for i in range(ggml.ggml_backend_dev_count())]


def note_processors(handles: Iterable[int]) -> None:
    """Record these devices as processors of other machines, which the library reports as GPUs."""
    _far_processors.update(handles)


def is_processor(device: int) -> bool:
    """Return whether that device computes on a processor and its memory."""
    return device in _far_processors or ggml.ggml_backend_dev_type(device) in PROCESSORS


def has_gpu() -> bool:
    """Return whether there is a device other than processors, here or on a worker.

    Without one, a library with RPC would still report that it can offload.
    """
    return not all(map(is_processor, device_handles()))


def cpu_features() -> list[str]:
    """Return the instruction sets and options of the CPU's kernels, as the library names them."""
    start()
    text = lib.llama_print_system_info().decode()
    return [part.split("=")[0].split(":")[-1].strip() for part in text.split("|") if part.split("=")[-1].strip() == "1"]


def backends() -> list[str]:
    """Return the backends that the library was compiled with, whether or not there is a device."""
    start()
    found = map(ggml.ggml_backend_reg_get, range(ggml.ggml_backend_reg_count()))
    return [ggml.ggml_backend_reg_name(registered).decode() for registered in found]


def devices() -> list[tuple[str, str, int, int]]:
    """Return the devices: backend, name, free and total bytes of memory."""
    return [_device(handle) for handle in device_handles()]


def _device(handle: int) -> tuple[str, str, int, int]:
    free, total = ctypes.c_size_t(0), ctypes.c_size_t(0)
    ggml.ggml_backend_dev_memory(handle, ctypes.byref(free), ctypes.byref(total))
    backend = ggml.ggml_backend_reg_name(ggml.ggml_backend_dev_backend_reg(handle))
    name = ggml.ggml_backend_dev_description(handle)
    return backend.decode(), name.decode("utf8", "replace"), free.value, total.value
