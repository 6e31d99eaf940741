"""Values of a pair as a registry file has them, checked and converted. Raises ValueError, as pydantic expects."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, ValidationInfo

from runtime.core.errors import SettingsError, nearest
from runtime.core.rare_sampling import rare_sampling
from runtime.drafters.registry import known_names
from runtime.models.adapters import Adapter, as_adapters
from runtime.models.addresses import as_upstream, as_workers
from runtime.models.model_files import HUB


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
