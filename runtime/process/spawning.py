"""Runs a module of this project in another process, connected by pipes. Knows processes; knows no models."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import IO, Any, NamedTuple

from runtime.core.packages import own_environment

HOST, HOST_PIPES = "runtime.process.host", 3  # the model process


class Spawned(NamedTuple):
    """A process, the pipes to it, and the file of its output."""

    process: subprocess.Popen[bytes]
    pipes: list[Connection]
    errors: IO[bytes]


_spare: dict[tuple[str, int], Spawned] = {}  # prepared processes by module and number of pipes


def prepare(module: str, n_pipes: int) -> None:
    """Spawn a process in advance, because its imports take as long as those here. If unused, it ends with this one."""
    if (module, n_pipes) not in _spare:
        _spare[module, n_pipes] = _spawn(module, n_pipes)


def discard() -> None:
    """End prepared processes that were not used."""
    while _spare:
        _, (process, pipes, errors) = _spare.popitem()
        for pipe in pipes:
            pipe.close()
        errors.close()
        process.kill()
        process.wait()


def spawn(module: str, n_pipes: int) -> Spawned:
    """Return a process that runs a module with the numbers of `n_pipes` pipes as arguments; a prepared one if any."""
    spare = _spare.pop((module, n_pipes), None)
    return spare if spare and spare.process.poll() is None else _spawn(module, n_pipes)


def _spawn(module: str, n_pipes: int) -> Spawned:
    pairs = [(ours, beyond_streams(their)) for ours, their in (Pipe() for _ in range(n_pipes))]
    theirs, errors = [their.fileno() for _, their in pairs], tempfile.TemporaryFile()  # noqa: SIM115 (the caller's)
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, *map(str, theirs)], stdin=subprocess.DEVNULL, stdout=errors,
            stderr=errors, env=own_environment() | {"GGML_NO_BACKTRACE": "1"}, **inheriting(theirs),
        )  # fmt: skip
    finally:
        for _, their in pairs:
            their.close()  # else the end of the process would go unnoticed here
    return Spawned(process, [ours for ours, _ in pairs], errors)


def beyond_streams(pipe: Connection) -> Connection:
    """Return the pipe with a number beyond the standard streams', which are redirected in the other process."""
    if sys.platform == "win32" or pipe.fileno() > 2:
        return pipe
    import fcntl

    with pipe:
        return Connection(fcntl.fcntl(pipe.fileno(), fcntl.F_DUPFD_CLOEXEC, 3))


def inherited(argument: str) -> Connection:
    """Return the inherited pipe with this number."""
    if sys.platform == "win32":
        from multiprocessing.connection import PipeConnection

        return PipeConnection(int(argument))
    return Connection(int(argument))


def inheriting(handles: Sequence[int]) -> dict[str, Any]:
    """Return the arguments with which Popen leaves these handles open in the other process."""
    if sys.platform != "win32":
        return {"pass_fds": handles}
    for handle in handles:
        os.set_handle_inheritable(handle, True)
    info = subprocess.STARTUPINFO(lpAttributeList={"handle_list": [*handles]})
    return {"startupinfo": info, "close_fds": True, "creationflags": subprocess.CREATE_NO_WINDOW}
