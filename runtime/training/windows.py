"""Windows: stretches of replies in which a head was wrong, as token ids on disk.

They are readable by the user alone and bounded in size; failures to store them are ignored. Windows for measuring are
never trained on: a window's tokens decide which kind it is. place.py knows where they are stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from runtime.core.draft import Tokens
from runtime.drafters.reply_store import Replies
from runtime.speculative.control.explain import Pass
from runtime.training.samples import Sample

LEAD = 128  # most tokens before the first that counts
LENGTH = 384  # tokens of a window with its lead
SHORTEST = 8  # minimum tokens of a useful reply
MAX_BYTES = 512 * 1024  # of all windows of a head: a few hundred


def missed(passes: Sequence[Pass], drafter: str) -> list[int]:
    """Return the places in a reply of the tokens that this drafter should have predicted.

    They are the target's own tokens in passes where its draft was rejected, and in plain passes without any draft.
    """
    found, n = list[int](), 0
    for each in passes:
        is_wrong = drafter == each.drafter and each.n_accepted < each.n_drafted
        if (is_wrong or not each.n_drafted) and each.n_accepted < each.n_tokens:
            found.append(n + each.n_accepted)
        n += each.n_tokens
    return found


def window_of(tokens: Tokens, n_prompt: int, passes: Sequence[Pass], drafter: str) -> Sample | None:
    """Return the stretch of a reply with the most tokens that the drafter missed; None if it missed none.

    The reply follows the first `n_prompt` of `tokens`. None for a reply that is too short.
    """
    positions = np.array(missed(passes, drafter), dtype=np.int64) + n_prompt
    if len(tokens) - n_prompt < SHORTEST or not len(positions):
        return None
    span, begin = LENGTH - LEAD, n_prompt
    if len(tokens) - n_prompt > span:
        n_within = np.searchsorted(positions, positions + span) - np.arange(len(positions))
        begin = min(int(positions[np.argmax(n_within)]), len(tokens) - span)
    start = max(0, begin - LEAD)
    return Sample(tokens[start : begin + span].copy(), begin - start)


class Windows:
    """The windows in one file; the oldest are removed for new ones."""

    def __init__(self, path: Path, n_vocab: int, max_bytes: int = MAX_BYTES) -> None:
        # A row is the number of tokens that are not the model's, followed by the window's tokens
        self._rows = Replies(path, max(n_vocab, LENGTH), max_bytes)
        self.n_vocab = n_vocab

    def add(self, window: Sample) -> None:
        """Store a window, where that is possible."""
        self._rows.append(np.concatenate([[window.start], window.tokens]).astype(np.int32))

    def read(self) -> list[Sample]:
        """Return all readable windows, oldest first; of equal windows only the latest."""
        found = [Sample(row[1:], int(row[0])) for row in self._rows.read() if 1 < len(row) <= LENGTH + 1]
        sound = [each for each in found if 1 <= each.start < len(each.tokens) and each.tokens.max() < self.n_vocab]
        latest = {each.key: each for each in reversed(sound)}
        return [*latest.values()][::-1]


def n_since(windows: Sequence[Sample], key: str) -> int:
    """Return the number of windows after the one with that key; all of them where it is missing."""
    keys = [each.key for each in windows]
    return len(keys) - 1 - keys.index(key) if key in keys else len(keys)
