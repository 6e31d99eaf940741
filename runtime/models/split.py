"""Checks that all files of a split model are in one folder, each under its own name.

Reads headers; opens no model.
"""

from __future__ import annotations

from pathlib import Path

from runtime.core.errors import ModelError
from runtime.models.header import read_header
from runtime.models.shards import shard_names

PART = "split.no"  # key of a shard's number, from 0


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
