"""The user's settings file: so far, when memory counts as short. Read strictly; knows the file and its names.

`settings.toml` in the user's configuration folder, all of it optional:

    [memory]
    tight_bytes = 3_000_000_000  # free memory below which the draft model is given up
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from platformdirs import user_config_path

from runtime.core.errors import SettingsError
from runtime.memory.pressure import USUAL, Thresholds
from runtime.models.registry import nearest


@dataclass(frozen=True, slots=True)
class Settings:
    """What a person may set once for all commands."""

    memory: Thresholds = USUAL


def default_path() -> Path:
    """Where this person's settings are, if there are any."""
    return user_config_path("slipstream", appauthor=False) / "settings.toml"


def read_settings(path: Path | None = None) -> Settings:
    """The defaults without a file.

    Raises SettingsError naming file, key and the nearest known one, or what makes no sense.
    """
    path = path or default_path()
    data = read_toml(path)
    if unknown := next((key for key in data if key != "memory"), None):
        raise SettingsError(f"{path}: unknown key '{unknown}'. {nearest(unknown, ['memory'])}")
    table = data.get("memory", {})
    if not isinstance(table, dict):
        raise SettingsError(f"{path}: 'memory' must be a table, such as [memory].")
    try:
        return Settings(Thresholds(**{key: number(key, value) for key, value in table.items()}))
    except SettingsError as error:
        raise SettingsError(f"{path}: [memory]: {error}") from error


def read_toml(path: Path) -> dict[str, Any]:
    """The file's tables; none without a file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise SettingsError(f"{path} cannot be read ({error.strerror}). Make it readable, or remove it.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SettingsError(f"{path} is not valid TOML: {error}. Mend that line.") from error


def number(key: str, value: object) -> Any:
    """A threshold's value. Raises SettingsError."""
    known = [field.name for field in fields(Thresholds)]
    if key not in known:
        raise SettingsError(f"unknown key '{key}'. {nearest(key, known)}")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise SettingsError(f"'{key}' must be a number, not {type(value).__name__}.")
    return int(value) if key.endswith("_bytes") and math.isfinite(value) else value
