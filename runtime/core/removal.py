"""Removes files at a user's request. Knows nothing of their contents."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from runtime.core.errors import SlipstreamError


def remove_files(paths: Iterable[Path], remedy: str) -> int:
    """Remove the files and return their total size in bytes.

    Raises SlipstreamError, which ends with the remedy, for the first file that cannot be removed.
    """
    n_bytes = 0
    for path in paths:
        try:
            n_bytes += path.stat().st_size
            path.unlink()
        except OSError as error:
            raise SlipstreamError(f"{path} cannot be removed ({error.strerror}). {remedy}") from error
    return n_bytes
