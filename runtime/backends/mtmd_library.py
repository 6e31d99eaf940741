"""The part of llama.cpp that encodes images, mtmd, which a build may lack. Loaded when it is first needed."""

from __future__ import annotations

import ctypes
import importlib
from functools import cache
from typing import Any

from runtime.backends import library
from runtime.core.errors import ModelError
from runtime.core.recompiling import with_images


@cache
def mtmd() -> Any:
    """Return the module of mtmd's functions, with its log redirected. Raises ModelError where it is not built."""
    try:
        found = importlib.import_module("llama_cpp.mtmd_cpp")
    except (OSError, RuntimeError, ImportError) as error:
        raise ModelError(
            "llama.cpp is compiled without mtmd here, so images cannot be read. This compiles it again in Slipstream's "
            f"environment, whose path `slipstream doctor` adds: {with_images(library.release(), library.backends())}"
        ) from error
    library.start()
    for set_log in (found.mtmd_log_set, found.mtmd_helper_log_set):
        set_log(library.on_log, ctypes.c_void_p(0))
    return found


def is_built() -> bool:
    """Return whether the library can encode images."""
    try:
        return bool(mtmd())
    except ModelError:
        return False
