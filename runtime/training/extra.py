"""Checks the modules that training needs besides: torch and gguf, from the extra `train`."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from runtime.core.errors import SlipstreamError

MODULES = "torch", "gguf"


class TrainingError(SlipstreamError):
    """A draft cannot be trained, or not now; finished work is kept."""


def require_extra() -> None:
    """Raise TrainingError if a module that training needs is missing, or cannot be loaded."""
    if missing := [name for name in MODULES if find_spec(name) is None]:
        raise TrainingError(
            f"Training needs {' and '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed. "
            "Install what is missing with `pip install 'slipstream[train]'`."
        )
    try:
        import_module(MODULES[0])
    except (ImportError, OSError) as error:
        raise TrainingError(
            f"{MODULES[0]} is installed and cannot be loaded ({str(error).strip().splitlines()[0]}). Install it again "
            "with `pip install --force-reinstall torch`."
        ) from error
