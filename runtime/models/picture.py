"""Checks a picture before anything decodes it: its format, its size in pixels, and that it is whole.

Reads headers only, and of a PNG how much its data inflates to. Knows bytes; decodes no picture. Its limits are those of
what decodes pictures later, which allocates what a header says.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

from runtime.core.errors import PictureError

MAX_BYTES = 2**25  # of a file
MAX_PIXELS = 2**25  # of a picture: 100 MB when it is decoded
MAX_SIDE = 2**15  # pixels
MAX_SCANS = 64  # of a progressive JPEG: each one is decoded over the whole picture
REMEDY = "Send it as a PNG or JPEG."
# Formats that are recognised, but not decoded
OTHERS = {
    rb"RIFF....WEBP": "a WebP", rb"....ftyp(?:heic|heix|mif1|msf1)": "a HEIC", rb"....ftypavi[fs]": "an AVIF",
    rb"(?:II\*\0|MM\0\*)": "a TIFF", rb"%PDF": "a PDF", rb"\s*<(?:\?xml|svg|!DOCTYPE svg|!--)": "an SVG",
    rb"\x00\x00\x01\x00": "an icon", rb"8BPS": "a Photoshop file",
}  # fmt: skip


class PictureSize(NamedTuple):
    """A picture's format and its size in pixels."""

    kind: str  # PNG, JPEG, GIF or BMP
    width: int
    height: int


def check_picture(data: bytes, name: str = "The image") -> PictureSize:
    """Return the format and size of a picture from its file's bytes. Raises PictureError, a sentence about `name`, for
    what is not a whole picture within the limits.
    """
    if len(data) > MAX_BYTES:
        raise PictureError(
            f"{name} has {len(data) / 2**20:.0f} MiB, and {MAX_BYTES >> 20} are allowed. Make it smaller."
        )
    try:
        found = size_of(data, name)
    except (IndexError, zlib.error):
        raise PictureError(f"{name} is damaged or incomplete. Save it again as a PNG or JPEG.") from None
    return found


def size_of(data: bytes, name: str) -> PictureSize:
    """Return the format and size of a picture. Raises PictureError; IndexError and zlib.error if it is not whole."""
    read = next((read for start, read in READERS.items() if data.startswith(start)), None)
    if read is None:
        known = next((kind for start, kind in OTHERS.items() if re.match(start, data, re.DOTALL)), None)
        what = f"is {known}, which cannot be read" if known else "is not a picture that can be read"
        raise PictureError(f"{name} {what}. {REMEDY}")
    return read(data, name)


def bounded(kind: str, width: int, height: int, name: str) -> PictureSize:
    """Return the size if it is within the limits. Raises PictureError."""
    if not (width and height):
        raise IndexError
    if width > MAX_SIDE or height > MAX_SIDE or width * height > MAX_PIXELS:
        raise PictureError(
            f"{name} has {width} x {height} pixels, and {MAX_PIXELS >> 20} million with at most {MAX_SIDE} on a side "
            "are allowed. Make it smaller."
        )
    return PictureSize(kind, width, height)


def number(data: bytes, at: int, size: int, order: str = "little") -> int:
    """Return an unsigned number of the file. Raises IndexError where the file ends before."""
    if at + size > len(data):
        raise IndexError
    return int.from_bytes(data[at : at + size], "little" if order == "little" else "big")


def png(data: bytes, name: str) -> PictureSize:
    """Return a PNG's size. Its data must inflate to just the pixels: what decodes it has no limit of its own."""
    width, height, depth, colour, interlaced = (number(data, *field, "big") for field in PNG_FIELDS)
    found = bounded("PNG", width, height, name)
    bits = depth * {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}.get(colour, 0)
    if bits not in (1, 2, 4, 8, 16, 24, 32, 48, 64):
        raise IndexError
    rows = 2 * height + 14 if interlaced else height  # of interlaced ones seven passes have their own rows
    most = rows + (height * width * bits + 7) // 8 + rows
    inflate, left = zlib.decompressobj(), b""
    for piece in png_pieces(data):
        left = piece
        while left and not inflate.eof:
            most -= len(inflate.decompress(left, 2**20))
            left = inflate.unconsumed_tail
            if most < 0:
                raise PictureError(f"{name} inflates to more than its {width} x {height} pixels. Save it again.")
    if not inflate.eof:
        raise IndexError
    return found


def png_pieces(data: bytes) -> Iterator[bytes]:
    """Yield the compressed pieces of a PNG's pixels. Raises IndexError if the file ends before its last chunk."""
    at = 8
    while True:
        length, kind = number(data, at, 4, "big"), data[at + 4 : at + 8]
        number(data, at + 8 + length, 4)
        if kind == b"IEND":
            return
        if kind == b"IDAT":
            yield data[at + 8 : at + 8 + length]
        at += 12 + length


def jpeg(data: bytes, name: str) -> PictureSize:
    """Return a JPEG's size, which stands in the header of its frame. The file must have its end mark."""
    at = 2
    while True:
        if number(data, at, 1) != 0xFF:
            raise IndexError
        mark = number(data, at + 1, 1)
        if mark == 0xFF:  # fill bytes
            at += 1
        elif 0xC0 <= mark <= 0xCF and mark not in (0xC4, 0xC8, 0xCC):
            break
        elif mark in (0xD9, 0xDA):
            raise IndexError
        else:
            at += 2 + max(2, number(data, at + 2, 2, "big"))
    if data.count(b"\xff\xda") > MAX_SCANS:
        raise PictureError(f"{name} is a JPEG of more than {MAX_SCANS} scans. Save it again.")
    if data.rfind(b"\xff\xd9") < at:
        raise IndexError
    return bounded("JPEG", number(data, at + 7, 2, "big"), number(data, at + 5, 2, "big"), name)


def gif(data: bytes, name: str) -> PictureSize:
    """Return a GIF's size. It must have one picture."""
    found = bounded("GIF", number(data, 6, 2), number(data, 8, 2), name)
    flags = number(data, 10, 1)
    at, n = 13 + (3 << (flags & 7) + 1 if flags & 0x80 else 0), 0
    while (mark := number(data, at, 1)) != 0x3B:
        if mark == 0x2C:
            n, inner = n + 1, number(data, at + 9, 1)
            left, top, width, height = (number(data, at + 1 + 2 * i, 2) for i in range(4))
            if left + width > found.width or top + height > found.height:
                raise IndexError
            at += 11 + (3 << (inner & 7) + 1 if inner & 0x80 else 0)
        elif mark == 0x21:
            at += 2
        else:
            raise IndexError
        while length := number(data, at, 1):
            at += 1 + length
        at += 1
        if n > 1:
            raise PictureError(f"{name} is an animated GIF. Send one of its pictures as a PNG or JPEG.")
    if not n:
        raise IndexError
    return found


def bmp(data: bytes, name: str) -> PictureSize:
    """Return a BMP's size. The file must hold its pixels; compressed ones are not read."""
    offset, header = number(data, 10, 4), number(data, 14, 4)
    if header == 12:
        width, height, bits, packed = number(data, 18, 2), number(data, 20, 2), number(data, 24, 2), 0
    else:
        width, height, bits, packed = (number(data, *field) for field in ((18, 4), (22, 4), (28, 2), (30, 4)))
    found = bounded("BMP", width, min(height, 2**32 - height), name)  # a negative height: the rows are from the top
    if packed not in (0, 3) or bits not in (1, 4, 8, 16, 24, 32):
        raise PictureError(f"{name} is a compressed BMP, which cannot be read. {REMEDY}")
    number(data, offset + (width * bits + 31) // 32 * 4 * found.height - 1, 1)
    return found


PNG_FIELDS = (16, 4), (20, 4), (24, 1), (25, 1), (28, 1)  # places and sizes of width, height, depth, colour, interlace
READERS: dict[bytes, Callable[[bytes, str], PictureSize]] = {
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR": png, b"\xff\xd8\xff": jpeg, b"GIF87a": gif, b"GIF89a": gif, b"BM": bmp,
}  # fmt: skip
