"""Pictures that are written here, whole ones and hostile ones: no library for them is needed."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]  # [height, width, 3]


def noise(width: int, height: int, seed: int = 0) -> Pixels:
    """Return pixels of random colours."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def chunk(kind: bytes, data: bytes) -> bytes:
    """Return one chunk of a PNG."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(pixels: Pixels, extra: Sequence[bytes] = (), size: tuple[int, int] | None = None, data: bytes = b"") -> bytes:
    """Return a PNG of these pixels, with other chunks before them; `size` and the raw `data` may be false."""
    height, width, _ = pixels.shape
    header = struct.pack(">IIBBBBB", *(size or (width, height)), 8, 2, 0, 0, 0)
    rows = data or b"".join(b"\0" + row.tobytes() for row in pixels)
    chunks = chunk(b"IHDR", header), *extra, chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def bmp(pixels: Pixels) -> bytes:
    """Return a BMP of these pixels, whose width must be a multiple of four."""
    height, width, _ = pixels.shape
    rows = pixels[::-1, :, ::-1].tobytes()
    header = struct.pack(
        "<2sIHHIIiiHHIIiiII", b"BM", 54 + len(rows), 0, 0, 54, 40, width, height, 1, 24, 0, 0, 1, 1, 0, 0
    )
    return header + rows


def gif(n: int = 1, size: tuple[int, int] = (1, 1), inner: tuple[int, int] = (1, 1)) -> bytes:
    """Return a GIF with `n` pictures of one colour."""
    frame = b"\x2c" + struct.pack("<HHHHB", 0, 0, *inner, 0) + b"\x02\x02\x44\x01\0"
    return b"GIF89a" + struct.pack("<HHBBB", *size, 0x80, 0, 0) + b"\0\0\0\xff\xff\xff" + n * frame + b"\x3b"


def jpeg(width: int, height: int, n_scans: int = 1) -> bytes:
    """Return the marks of a JPEG without pixels."""
    table = b"\xff\xdb" + struct.pack(">H", 67) + bytes(65)
    frame = b"\xff\xc0" + struct.pack(">HBHHB", 11, 8, height, width, 1) + b"\x01\x11\0"
    scan = b"\xff\xda" + struct.pack(">HB", 8, 1) + b"\x01\0\0\x3f\0" + b"\0"
    return b"\xff\xd8" + table + frame + n_scans * scan + b"\xff\xd9"
