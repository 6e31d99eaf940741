"""Has chat templates rendered in a process of their own, which is ended when one takes too much time or memory.

Nothing in Python stops one long operation, or one that fills the memory; a process can be killed at any moment.
Knows processes; knows no messages, and no Jinja.
"""

from __future__ import annotations

import pickle
import subprocess
import time
from collections import deque
from collections.abc import Mapping
from enum import Enum, auto
from multiprocessing import Pipe
from typing import Any, NamedTuple

import psutil

from runtime.core.children import Child, beyond_streams

SECONDS = 3.0  # for one rendering, at most
MEMORY = 2**30  # bytes of the process that renders, at most
LOOK_SECONDS = 0.01  # between two looks at its memory
MAX_IDLE = 4  # processes that are kept for the next renderings
NO_WINDOW = getattr(subprocess, "CREATE_NO_WINDOW", 0)  # on Windows
ENDED = EOFError, OSError, psutil.Error  # what is raised where the process is gone
MODULE = "runtime.conversation.template_sandbox"


class RenderRequest(NamedTuple):
    """A template's source and its variables; without any it is only compiled. `now` is the time in ISO's format."""

    source: str
    given: Mapping[str, Any] | None = None
    now: str = ""
    longest: int = 0  # characters of the text, at most


class Outcome(Enum):
    """What became of a rendering."""

    WRITTEN = auto()
    UNREADABLE = auto()  # the template cannot be compiled
    REFUSED = auto()  # by the template, which says why
    FAILED = auto()
    LIMITED = auto()  # it takes too much


class Rendering(NamedTuple):
    """What became of a rendering, and its text or the reason."""

    outcome: Outcome
    text: str


class Renderer:
    """A process that renders templates, one at a time."""

    def __init__(self) -> None:
        self._pipe, theirs = Pipe()
        with beyond_streams(theirs) as theirs:
            self._child = Child(
                MODULE, theirs.fileno(), pipes=[theirs], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, creationflags=NO_WINDOW,
            )  # fmt: skip
        self._process = psutil.Process(self._child.pid)
        self._pipe.recv()  # importing Jinja is not a template's time

    @property
    def is_running(self) -> bool:
        """Whether it can render."""
        return self._child.poll() is None

    def end(self) -> None:
        """End the process."""
        self._pipe.close()
        self._child.end()

    def render(self, request: bytes) -> Rendering:
        """Return what becomes of a request, which comes pickled. The process has ended if it met a limit."""
        try:
            self._pipe.send_bytes(request)
            if limit := self._limit_met():
                self.end()
                return Rendering(Outcome.LIMITED, limit)
            found: Rendering = self._pipe.recv()
        except ENDED:
            self.end()
            return Rendering(Outcome.LIMITED, "it ends the process that renders it")
        return found

    def _limit_met(self) -> str:
        """Wait for the rendering; return what was too much as a clause, "" if it is there."""
        ends = time.monotonic() + SECONDS
        while not self._pipe.poll(LOOK_SECONDS):
            if time.monotonic() > ends:
                return f"it takes more than {SECONDS:g} s"
            if self._process.memory_info().rss > MEMORY:
                return f"it takes more than {MEMORY / 2**30:g} GiB of memory"
        return ""


_idle = deque[Renderer]()


def render(request: RenderRequest) -> Rendering:
    """Return what becomes of a request. Raises RecursionError for variables that nest too deeply."""
    data = pickle.dumps(request)
    try:
        renderer = taken()
    except ENDED:
        return Rendering(Outcome.LIMITED, "no process can be started for it")
    found = renderer.render(data)
    if renderer.is_running and len(_idle) < MAX_IDLE:
        _idle.append(renderer)
    else:
        renderer.end()
    return found


def taken() -> Renderer:
    """Return a process that is idle, or a new one, so that slow templates delay nobody."""
    while _idle:
        if (renderer := _idle.pop()).is_running:
            return renderer
        renderer.end()
    return Renderer()
