"""An array of strings as stored in a GGUF file: each after its length.

Knows bytes; knows no file and not the meaning of the strings.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

LENGTH = struct.Struct("<Q")  # before each string


@dataclass(frozen=True, slots=True)
class Strings:
    """`n` strings whose lengths have been checked.

    They are decoded only when read, as a vocabulary has hundreds of thousands and few are needed.
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
        """Return all strings as text."""
        return [string.decode("utf8", "replace") for string in self]

    def agrees(self, other: Strings) -> bool:
        """Whether both have the same bytes, up to the end of the shorter one."""
        shorter, longer = sorted((self.data, other.data), key=len)
        return longer.startswith(shorter)
