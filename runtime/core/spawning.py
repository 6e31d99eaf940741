"""Starts the model process, connected by pipes. Knows processes; knows no models."""

from __future__ import annotations

import subprocess
import tempfile
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import IO, NamedTuple

from runtime.core.children import Child, beyond_streams

NO_WINDOW = getattr(subprocess, "CREATE_NO_WINDOW", 0)  # on Windows
HOST, N_PIPES = "runtime.engine.process.host", 3  # the module that the process runs, with the numbers of its pipes


class Spawned(NamedTuple):
    """A process, the pipes to it, and the file of its output."""

    process: Child
    pipes: list[Connection]
    errors: IO[bytes]


_spare = list[Spawned]()  # a process that was prepared


def prepare() -> None:
    """Spawn a process in advance, because its imports take as long as those here. If unused, it ends with this one."""
    if not _spare:
        _spare.append(_spawn())


def discard() -> None:
    """End a prepared process that was not used."""
    while _spare:
        process, pipes, errors = _spare.pop()
        for pipe in pipes:
            pipe.close()
        errors.close()
        process.end()


def spawn() -> Spawned:
    """Return a new process; the prepared one, if any."""
    spare = _spare.pop() if _spare else None
    return spare if spare and spare.process.poll() is None else _spawn()


def _spawn() -> Spawned:
    pairs = [(ours, beyond_streams(their)) for ours, their in (Pipe() for _ in range(N_PIPES))]
    theirs, errors = [their.fileno() for _, their in pairs], tempfile.TemporaryFile()  # noqa: SIM115 (the caller's)
    try:
        process = Child(
            HOST, *theirs, pipes=[their for _, their in pairs], stdin=subprocess.DEVNULL, stdout=errors, stderr=errors,
            env={"GGML_NO_BACKTRACE": "1"}, creationflags=NO_WINDOW,
        )  # fmt: skip
    finally:
        for _, their in pairs:
            their.close()  # else the end of the process would go unnoticed here
    return Spawned(process, [ours for ours, _ in pairs], errors)
