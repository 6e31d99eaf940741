"""The file of `--trace`, open while a command runs. Loads no rich, which takes 40 ms of each reply's start."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import typer

from runtime.engine.trace import TraceFile
from runtime.models.registry import Pair


@contextmanager
def trace_to(path: Path | None, pair: Pair) -> Iterator[TraceFile | None]:
    """The file that passes are written to, until the block ends; None where none is wanted. Raises TraceError."""
    if path is None:
        yield None
        return
    if pair.upstream:
        raise typer.BadParameter(
            f"{pair.upstream} has the model and tells nothing of its passes. Leave it out.", param_hint="'--trace'"
        )
    with closing(TraceFile(path.expanduser())) as file:
        yield file
