"""Pairs of target and draft that have a name: models.toml and the user's own, read strictly.

Knows files and names; opens no model.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from platformdirs import user_config_path

from runtime.core.errors import RegistryError
from runtime.models.hub.names import HubError
from runtime.models.shards import is_first

HUB = "hf:"  # what a file's name begins with that is fetched from the hub

MAX_NAME = 4095  # characters of a path
USUAL = ("model", "ngram", "grammar", "prediction")  # the drafters of a pair that names none
DRAFTERS = (*USUAL, "layerskip", "suffix", "lookahead")  # what a pair may name under `drafters`
RANGES = {
    "size": (0, 2**63), "context": (16, 2**31 - 1), "exit_layer": (0, 10_000), "temperature": (0, 100), "top_k": (0,
    2**31 - 1), "top_p": (0.001, 1),
    "min_p": (0, 0.999),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pair:
    """A target, perhaps a draft model for it, and how they like to be run.

    Paths are relative to the registry file; `hf:owner/repo:file` stands for a file of the hub until `located` says
    where it is.
    """

    name: str
    target: Path
    draft: Path | None = None
    description: str = ""
    licence: str = ""
    size: int = 0  # bytes of all its files, as a source says; 0 = not known
    context: int = 4096  # tokens, at most what the model was trained on
    drafters: tuple[str, ...] = USUAL
    exit_layer: int = 0  # after which the drafter "layerskip" exits; 0 = what the target's file says, or what pays best
    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    exact: bool = False  # bit-identical kernels for K-quants as well, a little slower

    @property
    def sampling_defaults(self) -> dict[str, Any]:
        """How the pair samples where a request does not say otherwise."""
        return {name: getattr(self, name) for name in ("temperature", "top_k", "top_p", "min_p")}


def bundled(name: str) -> Path:
    """A file that ships with Slipstream: beside the package in a wheel, in the repository's root in a checkout."""
    package = Path(__file__).parents[1]
    return package / name if (package / name).exists() else package.parent / name


def nearest(word: str, known: list[str]) -> str:
    """` Did you mean 'x'?`, or what there is."""
    close = get_close_matches(word[:64], known, n=1, cutoff=0.5)
    return f"Did you mean '{close[0]}'?" if close else f"Known: {', '.join(known[:12])}{', ...' * (len(known) > 12)}."


def user_registry() -> Path:
    """Where the user's own pairs are read from, if there is such a file."""
    return user_config_path("slipstream") / "models.toml"


def load_registry(path: Path | None = None) -> dict[str, Pair]:
    """Name -> pair: of `path`, or what is bundled with the user's own over it, key by key.

    Raises RegistryError naming file, key and the nearest valid name.
    """
    files = [path] if path else [bundled("models.toml"), *filter(Path.exists, [user_registry()])]
    return parse_registry([(file, read(file)) for file in files])


def read(path: Path) -> bytes:
    """A registry's text. Raises RegistryError."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise RegistryError(
            f"{path} cannot be read ({error.strerror}). Reinstall Slipstream or restore the file."
        ) from error


def parse_registry(texts: Sequence[tuple[Path, bytes]]) -> dict[str, Pair]:
    """The pairs of some files, of which later ones lie over earlier ones. Raises RegistryError."""
    tables: dict[str, dict[str, Any]] = {}
    for file, text in texts:
        for name, table in parse_tables(file, text).items():
            tables[name] = {**tables.get(name, {}), **table}
            if "target" not in tables[name]:
                raise RegistryError(f"{file}: [pairs.{name}]: 'target' is missing. Name the GGUF file of the model.")
    return {name: Pair(name=name, **table) for name, table in tables.items()}


def parse_tables(path: Path, text: bytes) -> dict[str, dict[str, Any]]:
    """The pairs of one file as checked values."""
    try:
        data = tomllib.loads(text.decode("utf8").replace("\r\n", "\n"))
    except (ValueError, RecursionError) as error:  # ValueError: no UTF-8, no TOML, or a number of too many digits
        raise RegistryError(f"{path} is not valid TOML: {error}. Mend that line.") from error
    if unknown := next((key for key in data if key != "pairs"), None):
        raise RegistryError(f"{path}: unknown key '{unknown}'. {nearest(unknown, ['pairs'])}")
    pairs = data.get("pairs", {})
    if not isinstance(pairs, dict) or not all(isinstance(table, dict) for table in pairs.values()):
        raise RegistryError(f"{path}: 'pairs' must hold tables, such as [pairs.demo].")
    return {name: read_pair(path, name, table) for name, table in pairs.items()}


def read_pair(path: Path, name: str, table: dict[str, object]) -> dict[str, Any]:
    """One table's values for a Pair."""
    where = f"{path}: [pairs.{name}]"
    known = {field.name: field.default for field in fields(Pair) if field.name != "name"}
    for key, value in table.items():
        if key not in known:
            raise RegistryError(f"{where}: unknown key '{key}'. {nearest(key, list(known))}")
        wanted: tuple[type, ...] = (
            (list,) if key == "drafters" else (str,) if key in ("target", "draft") else (type(known[key]),)
        )
        if not isinstance(value, (int, *wanted) if wanted == (float,) else wanted) or (
            isinstance(value, bool) and wanted != (bool,)
        ):
            raise RegistryError(f"{where}: '{key}' must be of type {wanted[0].__name__}, not {type(value).__name__}.")
        if isinstance(value, int | float) and key in RANGES and not RANGES[key][0] <= value <= RANGES[key][1]:
            raise RegistryError(
                f"{where}: '{key}' is {value}. It must be from {RANGES[key][0]:,} to {RANGES[key][1]:,}."
            )
    values: dict[str, Any] = {**table}
    if "drafters" in values:
        if bad := next((drafter for drafter in values["drafters"] if drafter not in DRAFTERS), None):
            raise RegistryError(f"{where}: unknown drafter '{bad}'. {nearest(str(bad), list(DRAFTERS))}")
        values["drafters"] = tuple(values["drafters"])
    values.update({key: placed(path, values[key]) for key in ("target", "draft") if key in values})
    return values


def placed(registry: Path, file: str) -> Path:
    """A file that a registry names."""
    return Path(file) if file.startswith(HUB) else registry.parent / file


def find_pair(name: str, registry: dict[str, Pair]) -> Pair:
    """The pair of that name; or a GGUF file, a folder with one, or a fetched `hf:owner/repo:file`, as a pair without a
    draft model.

    Raises RegistryError naming the nearest, and HubError for a file of the hub that is not here.
    """
    if name in registry:
        return located(registry[name])
    if (
        name.startswith(HUB)
        or name.endswith(".gguf")
        or "/" in name
        or "\\" in name
        or os.path.lexists(name[:MAX_NAME])
    ):
        target = find_file(name)
        return Pair(name=target.name, target=target)
    raise RegistryError(
        f"There is no pair '{name[:64]}'. {nearest(name, list(registry))} A path to a GGUF file works as well."
    )


def find_file(name: str) -> Path:
    """The model file that a person named by a path, a folder, or `hf:owner/repo:file`.

    Raises RegistryError and HubError.
    """
    if name.startswith(HUB):
        from runtime.models.hub.cache import here

        return here(name)
    if len(name) > MAX_NAME or "\0" in name:
        raise RegistryError(f"'{name[:64]}...' cannot be the name of a file. Name a GGUF file, or a folder with one.")
    try:
        path = Path(name).expanduser()
    except RuntimeError as error:
        raise RegistryError(f"There is no home folder for '{name}'. Write the path in full.") from error
    try:
        return only_model(path) if path.is_dir() else path
    except OSError as error:
        raise RegistryError(
            f"{name} cannot be looked at ({error.strerror}). Name a GGUF file that you may read."
        ) from error


def only_model(folder: Path) -> Path:
    """The one model in a folder."""
    try:
        found = sorted(file for file in folder.iterdir() if is_first(file.name))
    except OSError as error:
        raise RegistryError(
            f"The folder {folder} cannot be read ({error.strerror}). Name a GGUF file that you may read."
        ) from error
    if len(found) == 1:
        return found[0]
    names = ", ".join(file.name for file in found[:5]) + ", ..." * (len(found) > 5)
    what = f"{len(found)} models: {names}. Name one of them" if found else "no GGUF file. Name another, or a file"
    raise RegistryError(f"The folder {folder} has {what}.")


def located(pair: Pair) -> Pair:
    """The pair with the places of the files that were fetched from the hub.

    Raises HubError for one that is not here.
    """
    names = {key: path.as_posix() for key, path in (("target", pair.target), ("draft", pair.draft)) if path is not None}
    try:
        found = {key: find_file(name) for key, name in names.items() if name.startswith(HUB)}
    except HubError as error:
        raise HubError(
            f"The pair '{pair.name}' is not on this machine. Fetch it with `slipstream models pull {pair.name}`."
        ) from error
    return replace(pair, **found)  # type: ignore[arg-type]  # paths
