"""The types in a GGUF file: of metadata values and of tensors, and arrays of strings as stored there.

Knows bytes; knows no file and not the meaning of the strings.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

# Of values, as codes of the struct module.
SCALARS = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
STRING, ARRAY = 8, 9

# Of tensors: name, values per block, bytes per block.
TYPES = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22), 7: ("Q5_1", 32,
    24),
    8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 40), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292), 16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS",
    256, 74),
    18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50), 20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S",
    256, 82),
    23: ("IQ4_XS", 256, 136), 24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4), 27: ("I64", 1, 8), 28: ("F64", 1,
    8),
    29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2), 34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36), 41: ("Q1_0", 128, 18), 42: ("Q2_0", 64, 18),
}  # fmt: skip


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
