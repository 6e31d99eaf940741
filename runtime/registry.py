"""Pairs of target and draft that have a name: models.toml read strictly. Knows files and names; opens no model."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from runtime.errors import RegistryError

DRAFTERS = ("model", "ngram", "grammar")  # what a pair may name under `drafters`


@dataclass(frozen=True, slots=True)
class Pair:
    """A target, perhaps a draft model for it, and how they like to be run. Paths are relative to the registry file."""

    name: str
    target: Path
    draft: Path | None = None
    description: str = ""
    licence: str = ""
    context: int = 4096  # tokens, at most what the model was trained on
    drafters: tuple[str, ...] = DRAFTERS
    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    exact: bool = False  # bit-identical kernels for K-quants as well, a little slower


def bundled(name: str) -> Path:
    """A file that ships with Slipstream: beside the package in a wheel, in the repository's root in a checkout."""
    here = Path(__file__).parent
    return here / name if (here / name).exists() else here.parent / name


def nearest(word: str, known: list[str]) -> str:
    """` Did you mean 'x'?`, or what there is."""
    close = get_close_matches(word, known, n=1, cutoff=0.5)
    return f"Did you mean '{close[0]}'?" if close else f"Known: {', '.join(known)}."


def load_registry(path: Path | None = None) -> dict[str, Pair]:
    """Name -> pair. Raises RegistryError naming file, key and the nearest valid name."""
    path = path or bundled("models.toml")
    try:
        data = tomllib.loads(path.read_text(encoding="utf8"))
    except OSError as error:
        raise RegistryError(f"{path} cannot be read ({error.strerror}). Reinstall Slipstream or restore the file.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RegistryError(f"{path} is not valid TOML: {error}. Mend that line.") from error
    if unknown := next((key for key in data if key != "pairs"), None):
        raise RegistryError(f"{path}: unknown key '{unknown}'. {nearest(unknown, ['pairs'])}")
    pairs = data.get("pairs", {})
    if not isinstance(pairs, dict) or not all(isinstance(table, dict) for table in pairs.values()):
        raise RegistryError(f"{path}: 'pairs' must hold tables, such as [pairs.demo].")
    return {name: read_pair(path, name, table) for name, table in pairs.items()}


def read_pair(path: Path, name: str, table: dict[str, object]) -> Pair:
    """One table as a Pair."""
    where = f"{path}: [pairs.{name}]"
    known = {field.name: field.default for field in fields(Pair) if field.name != "name"}
    for key, value in table.items():
        if key not in known:
            raise RegistryError(f"{where}: unknown key '{key}'. {nearest(key, list(known))}")
        wanted: tuple[type, ...] = (list,) if key == "drafters" else (str,) if key in ("target", "draft") else (type(known[key]),)
        if not isinstance(value, (int, *wanted) if wanted == (float,) else wanted) or (isinstance(value, bool) and wanted != (bool,)):
            raise RegistryError(f"{where}: '{key}' must be of type {wanted[0].__name__}, not {type(value).__name__}.")
    if "target" not in table:
        raise RegistryError(f"{where}: 'target' is missing. Name the GGUF file of the model.")
    drafters = table.get("drafters", DRAFTERS)
    assert isinstance(drafters, (list, tuple))
    if bad := next((drafter for drafter in drafters if drafter not in DRAFTERS), None):
        raise RegistryError(f"{where}: unknown drafter '{bad}'. {nearest(str(bad), list(DRAFTERS))}")
    values: dict[str, Any] = {**table, "name": name, "drafters": tuple(drafters)}
    values.update({key: path.parent / str(table[key]) for key in ("target", "draft") if key in table})
    return Pair(**values)


def find_pair(name: str, registry: dict[str, Pair]) -> Pair:
    """The pair of that name, or a GGUF file's path as a pair without a draft model. Raises RegistryError naming the nearest."""
    if name in registry:
        return registry[name]
    if name.endswith(".gguf") or "/" in name or "\\" in name or Path(name).is_file():
        return Pair(name=Path(name).name, target=Path(name).expanduser())
    raise RegistryError(f"There is no pair '{name}'. {nearest(name, list(registry))} A path to a GGUF file works as well.")
