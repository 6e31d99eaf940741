"""Finds a model's file: a path, a folder with one model, or a file fetched from the hub; and checks that it is whole.

Knows files, their names and headers; must not know pairs, and opens no model.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from runtime.core.errors import ModelError, RegistryError, listed
from runtime.core.outside import require_plain
from runtime.models.header import read_header
from runtime.models.shards import is_encoder, is_first_shard, shard_names

HUB = "hf:"  # prefix of the name of a file from the hub
MAX_NAME = 4095  # characters of a path


def find_file(name: str) -> Path:
    """Return the model file named by a path, a folder, or `hf:owner/repo:file`.

    Raises RegistryError and HubError.
    """
    if name.startswith(HUB):
        from runtime.models.hub.cache import cached_path

        return cached_path(name)
    if len(name) > MAX_NAME or "\0" in name:
        raise RegistryError(f"'{name[:64]}...' cannot be the name of a file. Name a GGUF file, or a folder with one.")
    try:
        path = Path(name).expanduser()
    except RuntimeError as error:
        raise RegistryError(f"There is no home folder for '{name}'. Write the path in full.") from error
    try:
        return only_model(path) if path.is_dir() else first_shard(path)
    except OSError as error:
        raise RegistryError(f"{name} cannot be read ({error.strerror}). Name a GGUF file that you may read.") from error


def recent_file(name: str, recent: Iterable[str]) -> str:
    """Return the path among `recent` of the only file of that name, with or without `.gguf`, unless there is such a
    file in the current folder; else the name itself.

    Raises RegistryError if several files have that name.
    """
    if Path(name).name != name or os.path.lexists(name[:MAX_NAME]):
        return name
    named = (each for each in recent if Path(each).name in (name, f"{name}.gguf"))
    found = [each for each in dict.fromkeys(named) if Path(each).is_absolute() and os.path.isfile(each)]  # noqa: PTH113
    if len(found) > 1:
        raise RegistryError(f"Several recent files are called {name}: {', '.join(found)}. Write the path of one.")
    return found[0] if found else name


def only_model(folder: Path) -> Path:
    """Return the only model in a folder. Raises RegistryError if there are none, or several."""
    try:
        models = sorted(file for file in folder.iterdir() if is_first_shard(file.name) and not is_encoder(file.name))
    except OSError as error:
        raise RegistryError(
            f"The folder {folder} cannot be read ({error.strerror}). Name a GGUF file that you may read."
        ) from error
    if len(models) == 1:
        return models[0]
    names = listed([file.name for file in models])
    what = f"{len(models)} models: {names}. Name one of them" if models else "no GGUF file. Name another, or a file"
    raise RegistryError(f"The folder {folder} has {what}.")


def first_shard(path: Path) -> Path:
    """Return the first shard of a split model if it is in the same folder, else the file itself."""
    first = path.with_name(shard_names(path.name)[0]) if path.name else path
    return first if first.is_file() else path


def fetched(path: Path) -> Path:
    """Return the path of a pair's file, fetched from the hub or on this machine. Raises HubError."""
    return find_file(path.as_posix()) if hub_name(path) else path


def hub_name(path: Path) -> str:
    """Return `owner/repo:file` if a pair's file comes from the hub; "" for a file of this machine."""
    name = path.as_posix()
    return name.removeprefix(HUB) if name.startswith(HUB) else ""


PART = "split.no"  # key of a shard's number, from 0


def check_file(path: Path) -> None:
    """Check a file as far as possible without the library. Raises ModelError."""
    if not path.exists():
        raise ModelError(f"There is no file {path}. Check the path, or name a model of `slipstream models list`.")
    try:
        is_gguf = begins_as_gguf(path)
    except OSError as error:
        raise ModelError(f"{path} cannot be read ({error.strerror}). Name a GGUF file that you may read.") from error
    if not is_gguf:
        raise ModelError(f"{path.name} is not a GGUF file. Convert the model to GGUF, or download a GGUF of it.")
    check_shards(path)


def begins_as_gguf(path: Path) -> bool:
    """Return whether a file begins as a GGUF. Raises OSError."""
    require_plain(path)
    with path.open("rb") as file:
        return file.read(4) == b"GGUF"


def check_shards(path: Path) -> None:
    """Raises ModelError where a part of a split model is missing, or is another part under this name."""
    names = shard_names(path.name)
    if len(names) == 1:
        return
    if missing := [name for name in names if not path.with_name(name).is_file()]:
        raise ModelError(
            f"{path.name} is a part of a model in {len(names)} files, and {missing[0]} is not in its folder. Put all "
            "parts into one folder, or download them again."
        )
    for i, name in enumerate(names):
        number = read_header(path.with_name(name)).metadata.get(PART)
        if isinstance(number, int) and number != i:
            raise ModelError(f"{name} contains part {number + 1} of a model, not part {i + 1}. Download it again.")
