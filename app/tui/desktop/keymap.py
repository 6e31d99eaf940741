"""The keymap file, which assigns keys to bindings. Read strictly; knows binding ids, no screens."""

from __future__ import annotations

from pathlib import Path

from platformdirs import user_config_path

from runtime.core.errors import SettingsError
from runtime.models.strict_toml import nearest, only_value, read_toml


def default_path() -> Path:
    """Return the path of this person's keymap, which may not exist."""
    return user_config_path("slipstream", appauthor=False) / "keymap.toml"


def read_keymap(path: Path, known: list[str]) -> dict[str, str]:
    """Return the keys, separated by commas, by binding id; empty without a file.

    Raises SettingsError naming file, id and the nearest known one.
    """
    keys = only_value(path, read_toml(path, SettingsError), "keys", SettingsError)
    if not isinstance(keys, dict):
        raise SettingsError(f"{path}: 'keys' must be a table, such as [keys].")
    for name, value in keys.items():
        if name not in known:
            raise SettingsError(f"{path}: there is no action '{name}'. {nearest(name, known)}")
        if not isinstance(value, str) or not value.strip():
            raise SettingsError(f"{path}: '{name}' must be a key such as \"ctrl+t\", or several separated by commas.")
    return keys
