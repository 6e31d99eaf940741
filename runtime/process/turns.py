"""In which order replies have their turns that share passes. Knows numbers of replies and of tokens."""

from __future__ import annotations

from collections.abc import Iterable

from runtime.engine.reply import Chunk

NEW = -1  # left to read before the first turn, which tells
FAIR = 4  # in one of so many rounds the first comer reads first, else whose prompt has least left to read


class Turns:
    """By number, how many tokens of its prompt a reply has left to read, in the order in which they came."""

    def __init__(self) -> None:
        self._left = dict[int, int]()
        self._n_rounds = 0

    def begin(self, number: int) -> None:
        """A reply begins."""
        self._left[number] = NEW

    def note(self, number: int, chunk: Chunk) -> None:
        """It had a turn."""
        is_reading = chunk.made is None and chunk.finish_reason is None
        left = chunk.stats.prompt_n - chunk.n_read if is_reading and chunk.stats else 0
        if left > 0:
            self._left[number] = left
        else:
            self.end(number)

    def end(self, number: int) -> None:
        """It has ended."""
        self._left.pop(number, None)

    def new(self) -> list[int]:
        """Those that have not begun, which come first, so that others' passes may read their prompts."""
        return [each for each, left in self._left.items() if left == NEW]

    def ready(self, numbers: Iterable[int]) -> list[int]:
        """Who of these has a turn in every round, as nothing is to be read before."""
        return [each for each in numbers if each not in self._left]

    def reading(self) -> list[int]:
        """Those whose prompts are being read, in order."""
        self._n_rounds += 1
        found = list(self._left)
        return found if self._n_rounds % FAIR == 0 else sorted(found, key=self._left.__getitem__)
