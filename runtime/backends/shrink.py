"""Smaller copies of a model through llama.cpp's quantizer: fewer bits, fewer layers, or both.

Knows files; measures nothing.

The quantizer may abort the process on a model that it does not expect, so it runs in a process of its own.
"""

from __future__ import annotations

import ctypes
import multiprocessing
from dataclasses import dataclass
from pathlib import Path

import llama_cpp.llama_cpp as lib

from runtime.backends import library
from runtime.core.children import end_with_parent
from runtime.core.errors import ModelError


@dataclass(frozen=True, slots=True)
class Recipe:
    """The reduction of a model. `file_type` is a value of llama.h's enum llama_ftype; None keeps the weights' type."""

    name: str
    file_type: int | None
    share: float = 1.0  # share of the layers kept, from the first one on

    def n_kept(self, n_layers: int) -> int:
        """Return the number of layers kept."""
        return max(1, round(self.share * n_layers))


RECIPES = (
    Recipe("q2", lib.LLAMA_FTYPE_MOSTLY_Q2_K),
    Recipe("half", None, 0.5),
    Recipe("half-q4", lib.LLAMA_FTYPE_MOSTLY_Q4_0, 0.5),
    Recipe("quarter", None, 0.25),
    Recipe("quarter-q4", lib.LLAMA_FTYPE_MOSTLY_Q4_0, 0.25),
)


def shrink(source: Path, path: Path, n_layers: int, recipe: Recipe) -> None:
    """Write the smaller model to `path`, or nothing. Raises ModelError."""
    part = path.with_name(f"{path.name}.incomplete")
    process = multiprocessing.get_context("spawn").Process(
        target=_write, args=(str(source), str(part), n_layers, recipe), daemon=True
    )
    try:
        process.start()
        process.join()
        if process.exitcode:
            raise ModelError(
                f"llama.cpp cannot make a smaller copy of {source.name} ({recipe.name}). Take a draft model of its "
                "family instead."
            )
        part.replace(path)
    finally:
        if process.is_alive():
            process.kill()
            process.join()
        part.unlink(missing_ok=True)


def _write(source: str, path: str, n_layers: int, recipe: Recipe) -> None:
    """Write the smaller copy; runs in a process of its own, whose exit code reports success."""
    end_with_parent()
    library.start()
    params = lib.llama_model_quantize_default_params()
    kept = recipe.n_kept(n_layers)
    dropped = (ctypes.c_int32 * (n_layers - kept + 1))(*range(kept, n_layers), -1)
    if kept < n_layers:
        params.prune_layers = ctypes.cast(dropped, ctypes.POINTER(ctypes.c_int32))
    if recipe.file_type is None:
        params.only_copy = True
    else:
        params.ftype, params.allow_requantize = recipe.file_type, True
    if lib.llama_model_quantize(source.encode(), path.encode(), ctypes.byref(params)):
        raise SystemExit(1)
