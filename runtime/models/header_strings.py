"""An array of strings as a GGUF file spells it: each after its length.

Knows bytes; knows no file and not what the strings mean.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

LENGTH = struct.Struct("<Q")  # before each string


@dataclass(frozen=True, slots=True)
class Strings:
    """`n` of them, whose lengths have been checked.

    A vocabulary has hundreds of thousands, and few are looked at, so none is made before.
    """

    n: int = 0
    data: bytes = b""

    def __len__(self) -> int:
        return self.n

    def __iter__(self) -> Iterator[bytes]:
        at = 0
        for _ in range(self.n):
            start = at + LENGTH.size
            at = start + LENGTH.unpack_from(self.data, at)[0]
            yield self.data[start:at]

    def texts(self) -> list[str]:
        """All strings as text."""
        return [string.decode("utf8", "replace") for string in self]

    def agrees(self, other: Strings) -> bool:
        """Are both alike to the byte, as far as the shorter one goes?"""
        shorter, longer = sorted((self.data, other.data), key=len)
        return longer.startswith(shorter)
