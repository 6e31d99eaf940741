"""Values of a pair from files: those of a registry, checked and converted, which raises ValueError as pydantic expects;
and the sampling that a GGUF file recommends for its model.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, ValidationInfo

from runtime.core.errors import ModelError, SettingsError, nearest
from runtime.core.rare_sampling import USUAL, RareSampling, rare_sampling
from runtime.drafters.registry import known_names
from runtime.models.adapters import Adapter, as_adapters
from runtime.models.addresses import as_upstream, as_workers
from runtime.models.header import Header, read_header
from runtime.models.model_files import HUB

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


def placed(file: object, info: ValidationInfo) -> object:
    """Return the path of a file in a registry, relative to the registry's folder, which is the context."""
    return file if not isinstance(file, str) or file.startswith(HUB) else Path(str(info.context), file)


def known_drafters(names: object) -> object:
    """Return the names of drafters. Raises ValueError for an unknown one."""
    for name in names if isinstance(names, list) else ():
        if name not in known_names():
            raise ValueError(f"unknown drafter '{name}'. {nearest(str(name), known_names())}")
    return names


def checked_upstream(url: object) -> object:
    """Return the normalized address of a server. Raises ValueError."""
    return as_upstream(url) if isinstance(url, str) and url else url


def checked_workers(addresses: object) -> object:
    """Return the addresses of workers, each with its port. Raises ValueError."""
    if isinstance(addresses, list) and not all(isinstance(each, str) for each in addresses):
        raise ValueError("'rpc' must be a list of texts, such as [\"192.168.1.21:50052\"].")
    return as_workers(addresses) if isinstance(addresses, list) else addresses


def checked_sampling(table: object) -> object:
    """Return the rare sampling settings of a table. Raises ValueError."""
    if not isinstance(table, dict):
        return table
    try:
        return rare_sampling(table)
    except SettingsError as error:
        raise ValueError(str(error)) from error


def placed_adapters(values: object, info: ValidationInfo) -> object:
    """Return the LoRA adapters that a registry names, relative to its folder. Raises ValueError."""
    return as_adapters(values, Path(str(info.context)))


ModelFile = Annotated[Path, BeforeValidator(placed)]

Drafters = Annotated[tuple[str, ...], BeforeValidator(known_drafters)]

Adapters = Annotated[tuple[Adapter, ...], BeforeValidator(placed_adapters)]


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
