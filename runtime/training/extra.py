"""What training needs beyond the rest: torch and gguf, which the extra `train` brings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from runtime.core.errors import SlipstreamError

MODULES = "torch", "gguf"


class TrainingError(SlipstreamError):
    """A draft cannot be trained, or not now; what was done so far is kept."""


def require_extra() -> None:
    """Raises TrainingError where a module is missing that training needs."""
    if missing := [name for name in MODULES if find_spec(name) is None]:
        raise TrainingError(
            f"Training needs {' and '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed. "
            "Install what is missing with `pip install 'slipstream[train]'`."
        )


@contextmanager
def loading() -> Iterator[None]:
    """While these modules are imported. Raises TrainingError where one is there and cannot be."""
    try:
        yield
    except (ImportError, OSError) as error:
        raise TrainingError(
            f"{MODULES[0]} is installed and cannot be loaded ({str(error).strip().splitlines()[0]}). Install it again "
            "with `pip install --force-reinstall torch`."
        ) from error
