"""`slipstream models check`: is what models.toml names still there? Asks the hub where a pair comes from it."""

from __future__ import annotations

from pathlib import Path

from runtime.errors import SlipstreamError
from runtime.gguf_header import read_model_header
from runtime.hub.fetch import Hub
from runtime.registry import HUB, load_registry


def check_all() -> int:
    """Prints a line per file; returns the exit code."""
    problems = 0
    for pair in load_registry().values():
        for path in filter(None, (pair.target, pair.draft)):
            try:
                found = check(path)
            except SlipstreamError as error:
                found, problems = f"WRONG: {error}", problems + 1
            print(f"{pair.name}: {path.as_posix()}: {found}")
    return 1 if problems else 0


def check(path: Path) -> str:
    """What there is. Raises SlipstreamError."""
    if path.as_posix().startswith(HUB):
        files = Hub().plan(path.as_posix())
        return f"on the hub, {sum(file.size for file in files):,} bytes"
    return f"here, {read_model_header(path).n_file_bytes:,} bytes"
