"""The tensors that llama.cpp requires for a file's metadata, from llama.cpp itself, so that no shapes are listed by
hand.

A program of its own, because the library aborts on unexpected metadata: `python -m
bench.instruments.architectures.shapes HEADER.gguf` prints JSON.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

QUIET = {"GGML_NO_BACKTRACE": "1"}  # otherwise an abort searches for a debugger
Shapes = dict[str, list[int]]  # by name, the contiguous axis first


class ShapeError(Exception):
    """The library rejects the metadata."""


class InitParams(ctypes.Structure):
    """gguf.h's struct gguf_init_params."""

    _fields_ = [("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p)]


def tensor_shapes(header: Path) -> Shapes:
    """Return the shapes, found in a process of its own. Raises ShapeError."""
    command = [sys.executable, "-m", __name__, str(header)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | QUIET)
    if done.returncode:
        last = " | ".join(done.stderr.strip().splitlines()[-3:])
        raise ShapeError(f"{header.name}: code {done.returncode}: {last}")
    found: Shapes = json.loads(done.stdout)
    return found


def main(path: str) -> None:
    """Print the shapes."""
    import llama_cpp.llama_cpp as lib

    from runtime.backends.private_llama import Tensor, ggml

    found: Shapes = {}
    read, init = ggml.gguf_init_from_file, ggml.llama_model_init_from_user
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)

    @callback
    def note(tensor: int, _: Any) -> None:
        one = Tensor.from_address(tensor)
        found[one.name.decode()] = without_ones(list(one.ne))

    lib.llama_backend_init()
    params = lib.llama_model_default_params()
    params.load_mtp = True
    read.restype, read.argtypes = ctypes.c_void_p, [ctypes.c_char_p, InitParams]
    init.restype, init.argtypes = ctypes.c_void_p, [ctypes.c_void_p, callback, ctypes.c_void_p, lib.llama_model_params]
    if not init(read(path.encode(), InitParams(True, None)), note, None, params):
        sys.exit(1)
    print(json.dumps(found))


def without_ones(shape: list[int]) -> list[int]:
    """Remove trailing axes of length 1, but keep at least one axis."""
    while len(shape) > 1 and shape[-1] == 1:
        shape.pop()
    return shape


if __name__ == "__main__":
    main(sys.argv[1])
