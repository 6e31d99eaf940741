"""What training needs beyond the rest: torch and gguf, which the extra `train` brings."""

from __future__ import annotations

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
