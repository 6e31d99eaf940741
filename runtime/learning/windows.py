"""Stretches of replies in which a head was wrong: token ids on disk, for the user alone, bounded in size, and never
worth an error.

What is measured on is never trained on: which part a window belongs to follows from its tokens. Where windows are kept
is said in place.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np

from runtime.core.draft import Tokens
from runtime.drafters.reply_store import Replies
from runtime.speculative.control.explain import Pass

LEAD = 128  # tokens before the first that counts, at most
LENGTH = 384  # of a window with its lead
SHORTEST = 8  # tokens of a reply that tell anything
HELD_OUT = 5  # of so many windows one is only measured on
MAX_BYTES = 512 * 1024  # of all windows of a head: a few hundred


class Window(NamedTuple):
    """Tokens as they stood in a conversation; from `begin` on they are the model's own."""

    tokens: Tokens
    begin: int

    @property
    def key(self) -> str:
        """Tells it from others."""
        return sha256(self.tokens.astype("<i4").tobytes()).hexdigest()

    @property
    def is_held_out(self) -> bool:
        """Is it only measured on?"""
        return int(self.key[:8], 16) % HELD_OUT == 0


def missed(passes: Sequence[Pass], drafter: str) -> list[int]:
    """The tokens of a reply that this drafter should have known: the target's own in passes where its draft was
    rejected, and in plain ones, where it was not even asked for one.
    """
    found, n = list[int](), 0
    for each in passes:
        is_wrong = drafter in each.drafters and each.n_accepted < each.n_drafted
        if (is_wrong or not each.drafters) and each.n_accepted < each.n_tokens:
            found.append(n + each.n_accepted)
        n += each.n_tokens
    return found


def window_of(tokens: Tokens, n_prompt: int, passes: Sequence[Pass], drafter: str) -> Window | None:
    """The stretch of a reply, which follows the first `n_prompt` of `tokens`, with most that the drafter missed."""
    positions = np.array(missed(passes, drafter), dtype=np.int64) + n_prompt
    if len(tokens) - n_prompt < SHORTEST or not len(positions):
        return None
    span, begin = LENGTH - LEAD, n_prompt
    if len(tokens) - n_prompt > span:
        n_within = np.searchsorted(positions, positions + span) - np.arange(len(positions))
        begin = min(int(positions[np.argmax(n_within)]), len(tokens) - span)
    start = max(0, begin - LEAD)
    return Window(tokens[start : begin + span].copy(), begin - start)


class Windows:
    """The windows in one file, the oldest of which make room for new ones."""

    def __init__(self, path: Path, n_vocab: int, max_bytes: int = MAX_BYTES) -> None:
        # A row is the window's tokens behind the number of those that are not the model's
        self._rows = Replies(path, max(n_vocab, LENGTH), max_bytes)
        self.n_vocab = n_vocab

    def add(self, window: Window) -> None:
        """Keeps one more, where that is possible."""
        self._rows.append(np.concatenate([[window.begin], window.tokens]).astype(np.int32))

    def read(self) -> list[Window]:
        """All, oldest first; those that cannot be read are left out, and of the same one the latest stays."""
        found = [Window(row[1:], int(row[0])) for row in self._rows.read() if 1 < len(row) <= LENGTH + 1]
        sound = [each for each in found if each.begin < len(each.tokens) and each.tokens.max() < self.n_vocab]
        latest = {each.key: each for each in reversed(sound)}
        return [*latest.values()][::-1]


def n_since(windows: Sequence[Window], key: str) -> int:
    """How many came after the one with that key; all where it is not among them."""
    keys = [each.key for each in windows]
    return len(keys) - 1 - keys.index(key) if key in keys else len(keys)
