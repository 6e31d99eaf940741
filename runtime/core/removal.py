"""Files that are removed because a person asked for it. Knows nothing of what is in them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from runtime.core.errors import SlipstreamError


def remove_files(paths: Iterable[Path], remedy: str) -> int:
    """Return how many bytes they had. Raises SlipstreamError, which ends in the remedy, for the first that stays."""
    n_bytes = 0
    for path in paths:
        try:
            n_bytes += path.stat().st_size
            path.unlink()
        except OSError as error:
            raise SlipstreamError(f"{path} cannot be removed ({error.strerror}). {remedy}") from error
    return n_bytes
