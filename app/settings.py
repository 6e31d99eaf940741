"""The user's settings file: workers, memory thresholds, admitted origins. Read strictly; knows the file and its names.

`settings.toml` in the user's configuration folder, all of it optional:

    model = "qwen3-4b"  # the terminal chat starts with it, instead of the model used last
    rpc = ["192.168.1.21:50052"]  # workers that take layers of any model
    prompt_cache_bytes = 0  # what was read of prompts is not kept on disk
    read_ahead = false      # the next prompt is not read while it is typed, or between requests

    [memory]
    tight_bytes = 3_000_000_000  # free memory below which the draft model is given up

    [server]
    allow_origins = ["app://obsidian.md"]  # apps and pages that may ask without a key
    models = ["~/gguf"]  # folders with models that `slipstream serve` offers besides those it finds
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from platformdirs import user_config_path
from pydantic import BeforeValidator, ConfigDict, Field, ValidatorFunctionWrapHandler, WrapValidator, with_config

from runtime.core.errors import SettingsError
from runtime.core.pressure import USUAL, Thresholds
from runtime.models.pair_values import checked_workers
from runtime.models.strict_toml import read_toml, validated

# Origins are how browsers and webviews identify the page or app that sends a request
LOCAL_ORIGIN = r"https?://((localhost|[a-z0-9-]+\.localhost|127\.0\.0\.1)\.?|\[::1\]|\[::ffff:7f00:1\])(:\d+)?"
ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://(\*|[a-z0-9._-]+|\[[0-9a-f:.]+\])(:\d{1,5})?")


def as_origin(text: str) -> str:
    """Return an origin as it is sent. `*` stands for any host of an app's scheme. Raises SettingsError."""
    found = ORIGIN.fullmatch(text.lower().removesuffix("/"))
    if found is None:
        raise SettingsError(f"'{text}' is not an origin. Write SCHEME://HOST, such as app://obsidian.md.")
    if found[2] == "*" and found[1] in ("http", "https"):
        raise SettingsError(f"'{text}' would admit every web page. Name its host, or set an API key instead.")
    return found[0]


def pattern(origins: Iterable[str]) -> str:
    """Return a regular expression for this machine's own pages and these origins."""
    return "|".join([LOCAL_ORIGIN, *(re.escape(origin).replace(r"\*", "[^/:]+") for origin in origins)])


def read_memory(table: Any, validate: ValidatorFunctionWrapHandler) -> Thresholds:
    """Return the table [memory]. Strings and booleans are refused here, because pydantic converts them to numbers."""
    for key, value in table.items() if isinstance(table, dict) else ():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"[memory]: '{key}' must be a number, not {type(value).__name__}.")
    try:
        found: Thresholds = validate(table)
    except SettingsError as error:
        raise ValueError(f"[memory]: {error}") from error
    return found


def read_origins(value: Any) -> tuple[str, ...]:
    """Return the list of origins. Errors name the key here, because pydantic does not for an error in a list."""
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValueError("'allow_origins' must be a list of texts, such as [\"app://obsidian.md\"].")
    try:
        return tuple(map(as_origin, value))
    except SettingsError as error:
        raise ValueError(f"'allow_origins': {error}") from error


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class ServerTable:
    """The table [server]."""

    allow_origins: Annotated[tuple[str, ...], BeforeValidator(read_origins)] = ()
    models: tuple[str, ...] = ()  # folders with models that `slipstream serve` offers besides those it finds


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class Settings:
    """What a person may set once for all commands."""

    model: str = ""  # with which the terminal chat starts; "": the one used last
    rpc: Annotated[tuple[str, ...], BeforeValidator(checked_workers)] = ()  # workers, where a pair names none
    memory: Annotated[Thresholds, WrapValidator(read_memory)] = USUAL
    prompt_cache_bytes: Annotated[int, Field(ge=0, le=10**15, strict=True)] = 8_000_000_000  # 0: none on disk
    read_ahead: Annotated[bool, Field(strict=True)] = True  # whether expected prompts are read in idle time
    server: ServerTable = field(default_factory=ServerTable)


def default_path() -> Path:
    """Return the path of the user's settings file, which may not exist."""
    return user_config_path("slipstream", appauthor=False) / "settings.toml"


def read_settings(path: Path | None = None) -> Settings:
    """Return the settings, with the defaults if there is no file.

    Raises SettingsError naming the file, the key and the nearest known one, or the invalid value.
    """
    path = path or default_path()
    return validated(Settings, read_toml(path, SettingsError), str(path), SettingsError)
