"""Has chat templates rendered in processes of their own, with limits of time and memory. Knows no messages."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any, NamedTuple

from runtime.core.watched import LimitError, WatchedProcesses, WorkLimits

SECONDS = 3.0  # for one rendering, at most
MEMORY = 2**30  # bytes of the process that renders, at most
PROCESSES = WatchedProcesses("runtime.conversation.template_sandbox")


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


def render(request: RenderRequest) -> Rendering:
    """Return what becomes of a request. Raises RecursionError for variables that nest too deeply."""
    try:
        rendering: Rendering = PROCESSES.ask(request, WorkLimits(SECONDS, MEMORY))
    except LimitError as error:
        return Rendering(Outcome.LIMITED, str(error))
    return rendering
