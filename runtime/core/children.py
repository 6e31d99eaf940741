"""Other Python processes that run our modules, and end when the process that began them does, however it ended.

The one that begins them holds a pipe, which the system closes when it is gone. Knows processes; knows no models.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import IO, Any

PACKAGES = Path(__file__).parents[2]  # these, not packages of the same name in the working directory
TAIL = 4096  # last bytes of a process's output that are read
LIFELINE = "SLIPSTREAM_LIFELINE"  # environment variable with the number of the pipe


def own_environment() -> dict[str, str]:
    """Return the environment variables with which another Python imports these packages."""
    paths = filter(None, [str(PACKAGES), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def interpreter() -> tuple[str, dict[str, str]]:
    """Return the Python that runs this program, and the environment variables with which it has the same packages and
    writes any text.

    On Windows, an environment's `python.exe` begins the real one as its child, and would be the process that is
    watched, measured and ended in its place.
    """
    if sys.platform != "win32":
        return sys.executable, {}
    real: str = getattr(sys, "_base_executable", sys.executable)
    return real, {"PYTHONUTF8": "1"} | ({} if real == sys.executable else {"__PYVENV_LAUNCHER__": sys.executable})


class Child(subprocess.Popen[bytes]):
    """A process that runs a module, which must call `end_with_parent`. It ends with this process or this object.

    It inherits `pipes`; `how` are arguments of Popen, where `env` adds to the environment.
    """

    def __init__(
        self,
        module: str,
        *args: object,
        pipes: Sequence[Connection] = (),
        env: dict[str, str] | None = None,
        **how: Any,
    ) -> None:
        theirs, self._lifeline = Pipe(duplex=False)
        with beyond_streams(theirs) as theirs:
            handles = [each.fileno() for each in (theirs, *pipes)]
            lifeline, (python, launched) = {LIFELINE: str(theirs.fileno())}, interpreter()
            super().__init__(
                [python, "-P", "-m", module, *map(str, args)],
                env=own_environment() | launched | lifeline | (env or {}),
                **inheriting(handles),
                **how,
            )

    def end(self) -> None:
        """Kill the process, and wait until it is gone. What it has begun ends with it."""
        self.kill()
        self.wait()


def last_line(output: IO[bytes]) -> str:
    """Return the last line with text of what a process wrote to a file; "" where there is none, or it is closed."""
    try:
        output.seek(0, os.SEEK_END)
        output.seek(max(0, output.tell() - TAIL))
        lines = output.read().decode("utf8", "replace").split("\n")
    except ValueError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def end_with_parent() -> bool:
    """End this process, from now on, when its parent ends. Return whether it is a Child or multiprocessing's."""
    wait = _parents_end()
    if wait is not None:
        threading.Thread(target=_end_after, args=(wait,), name="lifeline", daemon=True).start()
    return wait is not None


def _parents_end() -> Callable[[], object] | None:
    """Return a function that returns or raises when the parent ends; None where that is no process of ours."""
    if handle := os.environ.pop(LIFELINE, ""):
        return inherited(handle).recv_bytes
    parent = multiprocessing.parent_process()
    return parent.join if parent is not None else None


def _end_after(wait: Callable[[], object]) -> None:
    with suppress(EOFError, OSError):
        wait()
    os._exit(1)


def beyond_streams(pipe: Connection) -> Connection:
    """Return the pipe with a number beyond the standard streams', which are redirected in the other process."""
    if sys.platform == "win32" or pipe.fileno() > 2:
        return pipe
    import fcntl

    with pipe:
        return Connection(fcntl.fcntl(pipe.fileno(), fcntl.F_DUPFD_CLOEXEC, 3), pipe.readable, pipe.writable)


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
    return {"startupinfo": info, "close_fds": True}
