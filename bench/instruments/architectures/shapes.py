"""The tensors that llama.cpp wants for a file's metadata, asked of llama.cpp, so that nobody lists shapes by hand.

A program of its own, because the library aborts on metadata that it does not expect:
`python -m bench.instruments.architectures.shapes HEADER.gguf` prints JSON.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

QUIET = {"GGML_NO_BACKTRACE": "1"}  # an abort would else look for a debugger
Shapes = dict[str, list[int]]  # by name, the axis that lies together in memory first


class ShapeError(Exception):
    """The library does not take the metadata."""


class TensorHead(ctypes.Structure):
    """How ggml.h's struct ggml_tensor begins."""

    _fields_ = [("type", ctypes.c_int), ("buffer", ctypes.c_void_p), ("ne", ctypes.c_int64 * 4)]


class InitParams(ctypes.Structure):
    """gguf.h's struct gguf_init_params."""

    _fields_ = [("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p)]


def tensor_shapes(header: Path) -> Shapes:
    """Asks in a process of its own. Raises ShapeError."""
    command = [sys.executable, "-m", __name__, str(header)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | QUIET)
    if done.returncode:
        last = " | ".join(done.stderr.strip().splitlines()[-3:])
        raise ShapeError(f"{header.name}: code {done.returncode}: {last}")
    found: Shapes = json.loads(done.stdout)
    return found


def main(path: str) -> None:
    """Prints the shapes."""
    import llama_cpp
    import llama_cpp.llama_cpp as lib

    found: Shapes = {}
    base = base_library(Path(llama_cpp.__file__).parent / "lib")
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)

    @callback
    def note(tensor: int, _: Any) -> None:
        head = ctypes.cast(tensor, ctypes.POINTER(TensorHead)).contents
        found[base.ggml_get_name(tensor).decode()] = without_ones(list(head.ne))

    lib.llama_backend_init()
    params = lib.llama_model_default_params()
    params.load_mtp = True
    init = lib._lib.llama_model_init_from_user
    init.restype, init.argtypes = ctypes.c_void_p, [ctypes.c_void_p, callback, ctypes.c_void_p, lib.llama_model_params]
    if not init(base.gguf_init_from_file(path.encode(), InitParams(True, None)), note, None, params):
        sys.exit(1)
    print(json.dumps(found))


def base_library(folder: Path) -> Any:
    """The part of the library that reads files and names tensors, whose functions llama-cpp-python does not declare."""
    base = ctypes.CDLL(str(next(folder.glob("*ggml-base.*"))))
    base.gguf_init_from_file.restype = ctypes.c_void_p
    base.gguf_init_from_file.argtypes = [ctypes.c_char_p, InitParams]
    base.ggml_get_name.restype, base.ggml_get_name.argtypes = ctypes.c_char_p, [ctypes.c_void_p]
    return base


def without_ones(shape: list[int]) -> list[int]:
    """Without the axes of length 1 at its end, of which one is kept."""
    while len(shape) > 1 and shape[-1] == 1:
        shape.pop()
    return shape


if __name__ == "__main__":
    main(sys.argv[1])
