"""Reads the sampling that a GGUF file recommends for its model.

Knows the metadata keys and their valid values; knows no pair.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from runtime.core.errors import ModelError
from runtime.models.header import Header, read_header

KEYS = {  # by the setting's name: the metadata key, and the range of valid values
    "temperature": ("general.sampling.temp", 0, 100),
    "top_k": ("general.sampling.top_k", -1, 2**31 - 1),
    "top_p": ("general.sampling.top_p", 0.001, 1),
    "min_p": ("general.sampling.min_p", 0, 0.999),
}


def sampling_in(target: Path) -> dict[str, Any]:
    """Return the recommended settings by name; {} for a file that names none or cannot be read."""
    with suppress(ModelError, OSError):  # loading reports why
        return settings_of(read_header(target))
    return {}


def settings_of(header: Header) -> dict[str, Any]:
    """Return the valid settings in a header; others are left out."""
    found: dict[str, Any] = {name: setting(header, *key) for name, key in KEYS.items()}
    if (top_k := found["top_k"]) is not None:
        found["top_k"] = int(top_k)
    return {name: value for name, value in found.items() if value is not None}


def setting(header: Header, key: str, least: float, most: float) -> float | None:
    """Return the number under a key as a short decimal; None without one, or for one out of range."""
    value = header.metadata.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        return None
    return float(f"{value:.6g}")  # files have 32-bit numbers: 0.6 reads as 0.6000000238
