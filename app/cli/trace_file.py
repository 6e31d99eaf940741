"""The file of `--trace`, open while a command runs. Does not import rich, which would delay each reply by 40 ms."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import typer

from runtime.engine.trace import TraceFile
from runtime.models.plain_file import expanded
from runtime.models.registry import Pair


@contextmanager
def trace_to(path: Path | None, pair: Pair) -> Iterator[TraceFile | None]:
    """Open the file for passes until the block ends, or yield None without a path. Raises TraceError, and BadParameter
    for a remote model.
    """
    if path is None:
        yield None
        return
    if pair.upstream:
        raise typer.BadParameter(
            f"{pair.upstream} has the model and reports nothing about its passes. Leave it out.", param_hint="'--trace'"
        )
    with closing(TraceFile(expanded(path))) as file:
        yield file
