"""Which tokens of a reply have been shown: those that begin within its text.

Text that may be the beginning of a stop string is held back, and what follows a stop string is no text. Knows chunks;
must not know a protocol.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections import deque
from typing import NamedTuple

from runtime.engine import Chunk, Engine, TokenLogprobs


class ShownToken(NamedTuple):
    """A token with its log probabilities, and the number of characters of the reply before it."""

    offset: int
    entry: TokenLogprobs


class ShownTokens:
    """Reads the chunks of one reply whose log probabilities were requested."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._decoder = engine, getincrementaldecoder("utf8")("replace")
        self._n_shown = self._n_seen = 0  # characters of the text, and of the tokens
        self._waiting: deque[tuple[ShownToken, bool]] = deque()  # with whether they are text

    def read(self, chunk: Chunk) -> list[ShownToken]:
        """Return the tokens that are shown with this chunk. A token may end within a character."""
        self._n_shown += len(chunk.text)
        for entry in chunk.logprobs:
            data = b"" if self._engine.is_end(entry.token) else self._engine.token_bytes(entry.token)
            self._waiting.append((ShownToken(self._n_seen, entry), bool(data)))
            self._n_seen += len(self._decoder.decode(data))
        found: list[ShownToken] = []
        while self._waiting and (self._is_shown(*self._waiting[0]) or self._is_rest(chunk)):
            found.append(self._waiting.popleft()[0])
        return found

    def _is_shown(self, token: ShownToken, is_text: bool) -> bool:
        """Whether a token begins within the text so far. One without text may also stand at its end."""
        return token.offset < self._n_shown + (not is_text)

    def _is_rest(self, chunk: Chunk) -> bool:
        """Whether all tokens left are shown: another server's reply has ended, whose text may be shorter than they."""
        return bool(self._engine.facts.upstream and chunk.finish_reason and not chunk.stop)
