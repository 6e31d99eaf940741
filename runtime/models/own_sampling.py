"""Reads the sampling that a GGUF file recommends for its model.

Knows the metadata keys and their valid values; knows no pair.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from runtime.core.errors import ModelError, SettingsError
from runtime.core.rare_sampling import USUAL, RareSampling, rare_sampling
from runtime.models.header import Header, read_header

KEYS: dict[str, tuple[str, float, float]] = {  # by the setting's name: the metadata key, and the range of valid values
    "temperature": ("general.sampling.temp", 0, 100),
    "top_k": ("general.sampling.top_k", -1, 2**31 - 1),
    "top_p": ("general.sampling.top_p", 0.001, 1),
    "min_p": ("general.sampling.min_p", 0, 0.999),
    "repetition_penalty": ("general.sampling.penalty_repeat", 0.001, 100),
    "penalty_last_n": ("general.sampling.penalty_last_n", -1, 2**31 - 1),
}
RARE_KEYS = ("xtc_probability", "xtc_threshold", "mirostat", "mirostat_tau", "mirostat_eta")
MAX = 1e9  # of a number, whose own range is narrower
ORDER_KEY = "general.sampling.sequence"
WHOLE = ("top_k", "penalty_last_n")


def sampling_in(target: Path) -> dict[str, Any]:
    """Return the recommended settings by name; {} for a file that names none or cannot be read."""
    with suppress(ModelError, OSError):  # loading reports why
        return settings_of(read_header(target))
    return {}


def settings_of(header: Header) -> dict[str, Any]:
    """Return the valid settings in a header; others are left out."""
    found: dict[str, Any] = {name: setting(header, *key) for name, key in KEYS.items()}
    found |= {name: int(found[name]) for name in WHOLE if found[name] is not None}
    found = {name: value for name, value in found.items() if value is not None}
    rare = rare_settings(header)
    return found | {"sampling": rare} if rare != USUAL else found


def rare_settings(header: Header) -> RareSampling:
    """Return the rare settings in a header; invalid ones are left out."""
    found = {name: setting(header, f"general.sampling.{name}", -MAX, MAX) for name in RARE_KEYS}
    given: dict[str, Any] = {"samplers": header.metadata.get(ORDER_KEY)} | found
    rare = dict[str, Any]()
    for name, value in given.items():
        with suppress(SettingsError):
            rare |= {} if value is None else {name: getattr(rare_sampling({name: value}), name)}
    return RareSampling(**rare)


def setting(header: Header, key: str, least: float, most: float) -> float | None:
    """Return the number under a key as a short decimal; None without one, or for one out of range."""
    value = header.metadata.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        return None
    return float(f"{value:.6g}")  # files have 32-bit numbers: 0.6 reads as 0.6000000238
