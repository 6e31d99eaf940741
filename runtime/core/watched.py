"""Work in processes of their own, each of which is ended when a piece of it takes too much time or memory.

Nothing in Python stops one long operation, or one that fills the memory; a process can be killed at any moment.
Knows processes; knows no work.
"""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import psutil

from runtime.core.children import Child, beyond_streams, end_with_parent

LOOK_SECONDS = 0.01  # between two looks at a process's memory
MAX_IDLE = 4  # processes that are kept for the next pieces of work
ORPHANED = 60  # seconds of one piece of work after which nobody waits for it any more
NO_WINDOW = getattr(subprocess, "CREATE_NO_WINDOW", 0)  # on Windows
ENDED = EOFError, OSError, psutil.Error  # what is raised where a process is gone


class LimitError(Exception):
    """A piece of work took too much; the message says what, as a clause."""


class WorkLimits(NamedTuple):
    """What a piece of work may take at most."""

    seconds: float
    memory: int  # bytes of its process


def never() -> bool:
    """Return False: the work stays wanted."""
    return False


class WatchedProcess:
    """A process that runs a module, which must call `serve`, and does one piece of work at a time."""

    def __init__(self, module: str) -> None:
        self._pipe, theirs = Pipe()
        with beyond_streams(theirs) as theirs:
            self._child = Child(
                module, theirs.fileno(), pipes=[theirs], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, creationflags=NO_WINDOW,
            )  # fmt: skip
        self._process = psutil.Process(self._child.pid)
        self._has_begun = False

    @property
    def is_running(self) -> bool:
        """Whether it can be asked."""
        return self._child.poll() is None

    def wait(self) -> None:
        """Wait until it has begun, because its imports are not a part of the work. Raises EOFError or OSError."""
        if not self._has_begun:
            self._pipe.recv()
            self._has_begun = True

    def end(self) -> None:
        """End the process."""
        self._pipe.close()
        self._child.end()

    def ask(self, request: bytes, limits: WorkLimits, is_unwanted: Callable[[], bool]) -> Any:
        """Return the answer to a pickled request. Raises LimitError, after which the process has ended."""
        try:
            self._pipe.send_bytes(request)
            if limit := self._limit_met(limits, is_unwanted):
                raise LimitError(limit)
            return self._pipe.recv()
        except LimitError:
            self.end()
            raise
        except ENDED as error:
            self.end()
            raise LimitError("it ends the process that works on it") from error

    def _limit_met(self, limits: WorkLimits, is_unwanted: Callable[[], bool]) -> str:
        """Wait for the answer; return what was too much as a clause, "" if the answer is there."""
        ends = time.monotonic() + limits.seconds
        while not self._pipe.poll(LOOK_SECONDS):
            if time.monotonic() > ends:
                return f"it takes more than {limits.seconds:g} s"
            if self._process.memory_info().rss > limits.memory:
                return f"it takes more than {limits.memory / 2**30:g} GiB of memory"
            if is_unwanted():
                return "nobody waits for it any more"
        return ""


class WatchedProcesses:
    """The processes that run a module: as many as pieces of work at a time, so that slow ones delay nobody."""

    def __init__(self, module: str) -> None:
        self.module, self._idle = module, deque[WatchedProcess]()

    def prepare(self) -> None:
        """Start a process, whose imports take a tenth of a second, before the first piece of work needs it."""
        with suppress(*ENDED):
            if not self._idle:
                self._idle.append(WatchedProcess(self.module))

    def end(self) -> None:
        """End the processes that are idle, also those that have not begun yet."""
        while process := self._popped():
            process.end()

    def ask(self, request: object, limits: WorkLimits, is_unwanted: Callable[[], bool] = never) -> Any:
        """Return the answer to a request. Raises LimitError, also if `is_unwanted` returns True meanwhile, and
        RecursionError for a request that nests too deeply.
        """
        data = pickle.dumps(request)
        try:
            process = self._taken()
        except ENDED as error:
            raise LimitError("no process can be started for it") from error
        try:
            return process.ask(data, limits, is_unwanted)
        finally:
            if process.is_running and len(self._idle) < MAX_IDLE:
                self._idle.append(process)
            else:
                process.end()

    def _taken(self) -> WatchedProcess:
        """Return a process that is idle, or a new one. Raises one of ENDED."""
        while process := self._popped():
            if process.is_running:
                break
            process.end()
        process = process or WatchedProcess(self.module)
        process.wait()
        return process

    def _popped(self) -> WatchedProcess | None:
        """Return an idle process, which is this thread's now, or None: another thread may have taken the last one."""
        with suppress(IndexError):
            return self._idle.pop()
        return None


def serve(pipe: Connection, work: Callable[[Any], object], memory: int) -> None:
    """Do the work for each request, in at most `memory` bytes, until the other end of the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C in a terminal is for the process that asks
    end_with_parent()
    if sys.platform == "linux":  # elsewhere only the other process looks at the memory
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    pipe.send(None)  # it has begun
    while True:
        request = pipe.recv()
        end_after(ORPHANED)
        pipe.send(work(request))
        end_after(0)


def end_after(seconds: int) -> None:
    """End this process after these seconds by the system's alarm, which a long operation does not hold up; never
    with 0.
    """
    if hasattr(signal, "alarm"):
        signal.alarm(seconds)
