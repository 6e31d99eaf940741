"""Reads and writes the file of `--trace`: a line of JSON for each target pass of a reply, written during generation.

Knows passes and this format; the statistics sum them up.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from io import FileIO
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from runtime.core.drafter import NO_DRAFTER
from runtime.core.errors import SlipstreamError
from runtime.speculative.control.explain import Pass, Why

LONGEST_LINE = 2**20  # bytes
MOST = 10**15  # any number in a trace
NOT_READ = ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError


class TraceError(SlipstreamError):
    """A trace cannot be written, or a file is not a trace."""


class TracedPass(NamedTuple):
    """One line of a trace."""

    sequence: int  # number of the reply
    step: int  # number of the pass, from 1
    made: Pass
    why: Why


class TraceFile:
    """A trace file that is overwritten. Any thread may add to it."""

    def __init__(self, path: Path) -> None:
        """Open the file, and empty it if it is a trace. Raises TraceError if that fails or it is another file."""
        self.path, self.sequences, self._lock, self._is_over = path, count(1), Lock(), False
        try:
            self._file = emptied(path)
        except OSError as error:
            raise TraceError(
                f"The trace cannot be written to {path} ({error.strerror}). Name a file that you may write."
            ) from error

    def write(self, line: TracedPass) -> str:
        """Add a whole line or nothing. Return a sentence if that fails, which ends the trace; else ""."""
        data = text_of(line).encode()
        with self._lock:
            if self._is_over:
                return ""
            try:
                self._add(data)
            except OSError as error:
                self._is_over = True
                why = f"The trace {self.path} ends here ({error.strerror}); replies continue."
                return f"{why} Make room for the next trace."
        return ""

    def _add(self, data: bytes) -> None:
        """Write a line. Raises OSError; a partly written line is removed."""
        n = self._file.write(data)
        if n != len(data):
            with suppress(OSError):
                self._file.truncate(self._file.tell() - n)
            raise OSError(errno.ENOSPC, "no space left")

    def close(self) -> None:
        """Close the file; later lines are ignored."""
        with self._lock:
            self._is_over = True
            self._file.close()


def emptied(path: Path) -> FileIO:
    """Return a file to write a trace to: a new or an empty one, a former trace, or a terminal or the like.

    Raises OSError, and TraceError for a file that is no trace: a model may be named by mistake.
    """
    wait = getattr(os, "O_NONBLOCK", 0)  # else a pipe is waited for
    file = FileIO(os.open(path, os.O_RDWR | os.O_CREAT | wait | getattr(os, "O_BINARY", 0), 0o666), "r+")
    try:
        mode = os.fstat(file.fileno()).st_mode
        if stat.S_ISREG(mode):
            if not is_trace(file.read(LONGEST_LINE)):
                raise TraceError(f"{path} is a file that is no trace. Name another one, or remove it.")
            file.seek(0)
            file.truncate()
        elif not stat.S_ISCHR(mode):
            raise OSError(errno.EINVAL, "it is not a file, but a pipe, a disk or a socket")
    except BaseException:
        file.close()
        raise
    return file


def is_trace(head: bytes) -> bool:
    """Whether a file that begins so is empty, or a trace whose first line may be cut."""
    line, has_end, _ = head.partition(b"\n")
    if not has_end:
        return not head or (len(head) < LONGEST_LINE and line.startswith(b'{"sequence": '))
    try:
        return bool(as_pass(json.loads(line)))
    except NOT_READ:
        return False


def text_of(line: TracedPass) -> str:
    """Return the line as JSON, with its newline."""
    sequence, step, made, why = line
    rest = made.own_seconds - made.draft_seconds - made.verify_seconds
    parts = {"draft": made.draft_seconds, "target": made.verify_seconds, "rest": rest, "whole": made.seconds}
    found = {
        "sequence": sequence,
        "step": step,
        "drafter": None if made.drafter == NO_DRAFTER else made.drafter,
        "k": made.n_drafted,
        "confidences": [round(each, 3) for each in why.confidences],
        "accepted": made.n_accepted,
        "tokens": made.n_tokens,
        "seconds": {name: round(seconds, 9) for name, seconds in parts.items()},
        "reason": why.reason or None,
        "asked": why.asked,
        "not_asked": dict(why.unasked),
        "n_context": why.n_context,
        "n_together": made.n_together,
        "plain_per_second": round(why.plain_per_second, 6),
    }
    return json.dumps(found, ensure_ascii=False) + "\n"


def read(lines: Iterable[str], name: str) -> list[TracedPass]:
    """Return the passes of a trace of this name. Raises TraceError for an invalid line."""
    found = list[TracedPass]()
    for n, line in enumerate(lines, start=1):
        try:
            found.append(as_pass(json.loads(line)))
        except NOT_READ as error:
            raise TraceError(
                f"Line {n} of {name} is not a pass of a trace. Remove it, or trace a reply again."
            ) from error
    return found


def as_pass(found: Any) -> TracedPass:
    """Return the pass of a parsed line. Raises one of NOT_READ if it has another form."""
    drafter = str(found["drafter"] or NO_DRAFTER)
    draft, target, rest, whole = (number(found["seconds"][name]) for name in ("draft", "target", "rest", "whole"))
    k, accepted, tokens = (count_of(found[name]) for name in ("k", "accepted", "tokens"))
    own, n_together = draft + target + rest, count_of(found["n_together"])
    made = Pass(whole, drafter, k, accepted, tokens, draft, target, own, n_together)
    confidences, reason = tuple(map(number, found["confidences"])), str(found["reason"] or "")
    asked = tuple(map(str, found.get("asked", ())))
    unasked = {str(name): str(text) for name, text in found.get("not_asked", {}).items()}
    why = Why(count_of(found["n_context"]), confidences, reason, number(found["plain_per_second"]), asked, unasked)
    return TracedPass(count_of(found["sequence"]), count_of(found["step"]), made, why)


def count_of(value: Any) -> int:
    """Return a count that statistics can be made of. Raises one of NOT_READ."""
    if not 0 <= (found := int(value)) < MOST:
        raise ValueError(f"{found:e} cannot have been counted")
    return found


def number(value: Any) -> float:
    """Return a measured number; a difference of times may be below 0. Raises one of NOT_READ."""
    if not abs(found := float(value)) < MOST:
        raise ValueError(f"{found:e} cannot have been measured")
    return found
