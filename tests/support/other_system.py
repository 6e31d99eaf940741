"""Plays another operating system to the modules of app and runtime; libraries keep the real one.

Our modules get copies of the standard library's without what that system lacks, with what it adds, and where it is
Windows, files that are open can be neither renamed nor removed. Processes that ours begin play it too.
"""

from __future__ import annotations

import builtins
import ctypes
import multiprocessing.connection
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

SYSTEM = "TESTS_PLAY_SYSTEM"  # environment variable
ROOT = Path(__file__).parents[2]
GONE = ("fcntl", "resource", "termios", "tty", "pwd", "grp", "pty", "curses", "readline", "syslog")
POSIX = (
    "fork forkpty getuid geteuid getgid getegid setuid setgid getpgid getpgrp setpgid setsid killpg nice chown fchmod "
    "fchown tcgetpgrp setpriority getpriority PRIO_PROCESS O_NONBLOCK O_CLOEXEC O_NOFOLLOW O_DIRECTORY sysconf statvfs "
    "uname mkfifo pread pwrite posix_fadvise register_at_fork wait3 wait4 WNOHANG WIFSIGNALED pipe2 getloadavg"
).split()
SCHEDULING = [name for name in dir(os) if name.startswith(("sched_", "SCHED_"))] + ["process_cpu_count"]
LINUX = [*SCHEDULING, "posix_fadvise", "pipe2", "memfd_create", "copy_file_range", "eventfd", "pidfd_open", "getrandom"]
KEPT = {"SIGINT", "SIGTERM", "SIGABRT", "SIGFPE", "SIGILL", "SIGSEGV", "SIG_DFL", "SIG_IGN"}
SIGNALS = [name for name in dir(signal) if name.startswith("SIG") and name not in KEPT]
ALARMS = [*SIGNALS, "alarm", "setitimer", "pause", "pthread_kill", "pthread_sigmask", "siginterrupt"]


class StartupInfo:
    """Windows' STARTUPINFO, as far as it lists handles."""

    def __init__(self, lpAttributeList: Mapping[str, Sequence[int]] | None = None) -> None:  # noqa: N803 (its name)
        self.handles = (lpAttributeList or {}).get("handle_list", [])


class WindowsPopen(subprocess.Popen[Any]):
    """Takes what Windows takes, and passes on the handles as descriptors."""

    def __init__(self, args: Sequence[str], **how: Any) -> None:
        assert not {"pass_fds", "preexec_fn"} & how.keys(), "Windows has no such thing"
        how.pop("creationflags", None)
        info = how.pop("startupinfo", None)
        assert info is None or how.get("close_fds"), "all handles would be inherited"
        super().__init__(args, **how, pass_fds=info.handles if info else ())

    def send_signal(self, sig: int) -> None:
        assert sig == signal.SIGTERM, "Windows can only end a process"
        self.kill()

    def kill(self) -> None:
        super().send_signal(signal.SIGKILL)

    terminate = kill


def windows() -> tuple[dict[str, Sequence[str]], dict[str, dict[str, Any]]]:
    """Return what Windows lacks and adds, by module."""
    lacks = {"os": [*POSIX, *LINUX], "signal": ALARMS, "socket": ["AF_UNIX", "SO_REUSEPORT"], "subprocess": []}
    flags = {"CREATE_NO_WINDOW": 2**27, "CREATE_NEW_PROCESS_GROUP": 2**9}
    adds: dict[str, dict[str, Any]] = {
        "sys": {"platform": "win32"},
        "os": {"name": "nt", "set_handle_inheritable": lambda handle, is_inheritable: None, "O_BINARY": 0},
        "signal": {"SIGBREAK": signal.SIGUSR1, "CTRL_C_EVENT": 0, "CTRL_BREAK_EVENT": 1},
        "socket": {"SO_EXCLUSIVEADDRUSE": socket.SO_REUSEADDR},
        "subprocess": {"Popen": WindowsPopen, "STARTUPINFO": StartupInfo, **flags},
        "ctypes": {"cdll": SimpleNamespace(msvcrt=ctypes.CDLL(None))},
        "multiprocessing.connection": {"PipeConnection": multiprocessing.connection.Connection},
    }
    return lacks, adds


def macos() -> tuple[dict[str, Sequence[str]], dict[str, dict[str, Any]]]:
    """Return what macOS lacks and adds, by module."""
    return {"os": LINUX, "signal": ["SIGPWR", "SIGSTKFLT"]}, {"sys": {"platform": "darwin"}}


PLAYED = {"win32": (windows, GONE), "darwin": (macos, ())}


class PlayedModule(ModuleType):
    """A module of the standard library as another system has it."""

    def __init__(self, real: ModuleType, lacks: Sequence[str], adds: Mapping[str, Any]) -> None:
        super().__init__(real.__name__)
        self.__dict__.update(adds, _real=real, _lacks=frozenset(lacks) - adds.keys())

    def __getattr__(self, name: str) -> Any:
        if name in self._lacks:
            raise AttributeError(f"this system has no {self.__name__}.{name}")
        return getattr(self._real, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._real, name, value)


def open_files() -> set[str]:
    """Return the files that this process has open or mapped."""
    with open("/proc/self/maps", encoding="utf8") as maps:  # noqa: PTH123 (tests replace Path.open)
        found = {line.split(maxsplit=5)[-1].rstrip("\n") for line in maps if "/" in line}
    for descriptor in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with suppress(OSError):
            found.add(os.readlink(f"/proc/self/fd/{descriptor}"))  # noqa: PTH115
    return found


def hold_open_files() -> None:
    """Files of the application that are open cannot be renamed, replaced or removed, as on Windows."""

    def held(method: Callable[..., Any]) -> Callable[..., Any]:
        def tried(path: Path, *args: Any, **how: Any) -> Any:
            ends = {str(each.absolute()) for each in (path, *args[:1]) if isinstance(each, Path)}
            if ends & open_files() and is_ours(sys._getframe(1).f_code.co_filename):
                raise PermissionError(13, "The process cannot access the file because it is being used", str(path))
            return method(path, *args, **how)

        return tried

    for name in ("replace", "rename", "unlink"):
        setattr(Path, name, held(getattr(Path, name)))


def is_ours(file: str) -> bool:
    """Return whether a file is a module of app or runtime."""
    return file.startswith((f"{ROOT}/app/", f"{ROOT}/runtime/"))


def play(system: str) -> None:
    """From now on, modules of app and runtime that are imported see that system."""
    make, gone = PLAYED[system]
    lacks, adds = make()
    modules = {
        name: PlayedModule(import_module(name), lacks.get(name, ()), adds.get(name, {})) for name in {*lacks, *adds}
    }
    if system == "win32":
        hold_open_files()
    real = builtins.__import__

    def played(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> ModuleType:
        package = str((globals or {}).get("__package__") or (globals or {}).get("__name__") or "")
        if level or package.partition(".")[0] not in ("app", "runtime"):
            return real(name, globals, locals, fromlist, level)
        if name in gone:
            raise ModuleNotFoundError(f"this system has no {name}", name=name)
        if name in modules and (fromlist or "." not in name):
            return modules[name]
        return real(name, globals, locals, fromlist, level)

    builtins.__import__ = played


def play_as_told() -> None:
    """Play the system that the environment names, if any."""
    if system := os.environ.get(SYSTEM):
        play(system)


def environment(system: str, folder: Path) -> dict[str, str]:
    """Return environment variables with which Python, and what it starts, plays that system; `folder` is for a file."""
    (folder / "sitecustomize.py").write_text(
        "from tests.support import other_system\nother_system.play_as_told()\n", encoding="utf8"
    )
    paths = [str(folder), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, SYSTEM: system, "PYTHONPATH": os.pathsep.join(paths)}
