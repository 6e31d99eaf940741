"""Reads and writes the file of `--trace`: a line of JSON for each target pass of a reply, written during generation.

Knows passes and this format; the statistics sum them up.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Iterable
from contextlib import suppress
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from runtime.core.drafter import NO_DRAFTER
from runtime.core.errors import SlipstreamError
from runtime.speculative.control.explain import Pass, Why

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
        """Open the file. Raises TraceError if that fails."""
        self.path, self.sequences, self._lock, self._is_over = path, count(1), Lock(), False
        try:
            self._file = path.open("wb", buffering=0)
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
    draft, target, rest, whole = (float(found["seconds"][name]) for name in ("draft", "target", "rest", "whole"))
    k, accepted, tokens = int(found["k"]), int(found["accepted"]), int(found["tokens"])
    own, n_together = draft + target + rest, int(found["n_together"])
    made = Pass(whole, drafter, k, accepted, tokens, draft, target, own, n_together)
    confidences, reason = tuple(map(float, found["confidences"])), str(found["reason"] or "")
    asked = tuple(map(str, found.get("asked", ())))
    unasked = {str(name): str(text) for name, text in found.get("not_asked", {}).items()}
    why = Why(int(found["n_context"]), confidences, reason, float(found["plain_per_second"]), asked, unasked)
    return TracedPass(int(found["sequence"]), int(found["step"]), made, why)
