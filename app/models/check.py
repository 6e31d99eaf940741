"""`slipstream models check`: checks that the files of models.toml still exist. Asks the hub for pairs from there."""

from __future__ import annotations

from pathlib import Path

from app.terminal import print_text
from runtime.core.errors import SlipstreamError
from runtime.models.header import read_model_header
from runtime.models.hub.fetch import Hub
from runtime.models.hub.names import UnreachableError
from runtime.models.model_files import hub_name
from runtime.models.registry import load_registry


def check_all() -> int:
    """Print a line for each file, and one for each size that differs from models.toml. Returns the exit code.

    Raises UnreachableError.
    """
    problems = 0
    for pair in load_registry().values():
        sizes = list[int]()
        for path in pair.files:
            try:
                size, result = check(path)
                sizes.append(size)
            except UnreachableError:
                raise
            except SlipstreamError as error:
                result, problems = f"WRONG: {error}", problems + 1
            print_text(f"{pair.name}: {path.as_posix()}: {result}")
        if pair.size and len(sizes) == len(pair.files) and sum(sizes) != pair.size:
            problems += 1
            print_text(f"{pair.name}: WRONG: its files have {sum(sizes):,} bytes, and the registry says {pair.size:,}.")
    return 1 if problems else 0


def check(path: Path) -> tuple[int, str]:
    """Return the size of a pair's file in bytes, and its place. Raises SlipstreamError."""
    if name := hub_name(path):
        size = sum(file.size for file in Hub().plan(name))
        return size, f"on the hub, {size:,} bytes"
    size = read_model_header(path).n_file_bytes
    return size, f"here, {size:,} bytes"
