"""A reply that a test of scheduling reads."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from runtime.core.limits import Limits
from runtime.engine.output import Chunk
from tests.support.alone import Request, Said


class Reply:
    """A reply that somebody reads, and what was read of it."""

    def __init__(self, request: Request) -> None:
        self.request, self.said = request, Said()
        self.error: Exception | None = None
        self.is_cancelled = False
        self.n_waited = 0  # reads since the last that brought a token
        self.n_unwanted = 0  # steps that were made for it since it was cancelled
        self.number = 0
        self.came = deque[Chunk | Exception]()  # and was not read yet
        self.has_begun = self.has_ended = False  # as far as the engine has told

    @property
    def is_over(self) -> bool:
        return self.said.reason is not None or self.error is not None

    def hear(self, came: Chunk | Exception) -> None:
        """The engine tells something of it."""
        self.came.append(came)
        if isinstance(came, Chunk) and not self.has_begun:
            self.has_begun, self.n_waited = True, 0  # until now it was in line
        self.has_ended = isinstance(came, Exception) or came.finish_reason is not None

    def take(self, chunk: Chunk | Exception | None) -> None:
        """Notes what a read has brought."""
        if isinstance(chunk, Exception) or chunk is None:
            self.error, self.n_waited = chunk, self.n_waited + 1
            return
        assert len(chunk.tokens) == len(chunk.drafted)
        self.n_waited = 0 if chunk.tokens or chunk.finish_reason else self.n_waited + 1
        self.said.tokens += chunk.tokens
        self.said.text += chunk.text
        self.said.reason = chunk.finish_reason


def is_full(limits: Limits, replies: Sequence[Reply], is_short: bool, holds_one: bool) -> bool:
    """Would a new reply have to wait, though as many wait as may?"""
    if limits.max_running is None or limits.max_waiting is None:
        return False
    left = {}  # places of a kind, less those who wait for them; one place for both where one conversation is held
    for kind, most in ((False, limits.max_running), (True, 1)):
        alike = [each for each in replies if not each.has_ended and (holds_one or each.request.is_short == kind)]
        left[kind] = (1 if holds_one else most) - sum(each.has_begun or not each.is_cancelled for each in alike)
    n_waiting = max(0, -left[is_short]) if holds_one else sum(max(0, -n) for n in left.values())
    return left[is_short] <= 0 and n_waiting >= limits.max_waiting
