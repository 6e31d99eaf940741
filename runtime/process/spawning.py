"""Starts the model process, connected by pipes. Knows processes; knows no models."""

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

HOST, N_PIPES = "runtime.process.host", 3  # the module that the process runs, with the numbers of its pipes


class Spawned(NamedTuple):
    """A process, the pipes to it, and the file of its output."""

    process: subprocess.Popen[bytes]
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
        process.kill()
        process.wait()


def spawn() -> Spawned:
    """Return a new process; the prepared one, if any."""
    spare = _spare.pop() if _spare else None
    return spare if spare and spare.process.poll() is None else _spawn()


def _spawn() -> Spawned:
    pairs = [(ours, beyond_streams(their)) for ours, their in (Pipe() for _ in range(N_PIPES))]
    theirs, errors = [their.fileno() for _, their in pairs], tempfile.TemporaryFile()  # noqa: SIM115 (the caller's)
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", HOST, *map(str, theirs)], stdin=subprocess.DEVNULL, stdout=errors,
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
